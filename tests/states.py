"""Host states for tests of the pure decisions, without a file system."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

from hypothesis import strategies as st

from ktfleet import recipes
from ktfleet.config import Data, Workstation
from ktfleet.host.state import SCHEMA, Folder, HostState, Mount, Nvidia, Unit
from ktfleet.plan import Plan, account, make
from ktfleet.plan.files import paths, render
from ktfleet.plan.gpu.refusals import OPEN_LICENCE
from ktfleet.plan.overlay import changes as overlay
from ktfleet.plan.places import (
    BOOT_UNIT_ENABLED,
    BOOT_UNIT_PATH,
    COMPACTED,
    FRONT_ENABLED,
    FRONT_UNIT,
    FSTAB,
    IRQBALANCE_UNIT,
    LOCK,
    PERSISTENCED_ENABLED,
    PERSISTENCED_UNIT,
    POWER_LIMIT,
    POWER_LIMIT_ENABLED,
    SERVER_ENABLED,
    SERVER_PROGRAM,
    SERVER_PROGRESS,
    SERVER_STARTED,
    SERVER_UNIT,
    STACK,
    STACK_CACHE,
    STACK_PROGRAM,
    SYSTEM_PYTHON,
    TIME_SERVICES,
    WEIGHTS,
    unit_file,
)
from ktfleet.plan.row import Writer
from ktfleet.plan.server import changes as server
from ktfleet.plan.settings import (
    BANNED_CPUS,
    COMPACTION,
    DEFAULT_IRQ_AFFINITY,
    EPP,
    GLIBC_TUNABLES,
    GOVERNOR,
    MEMORY_SWAP_MAX,
    NODE_HUGEPAGES,
    OPT_INS,
    POSSIBLE_CPUS,
    SMT_CONTROL,
    TABLE,
    THP_DEFRAG,
    THP_ENABLED,
    TURBO_OFF,
    UNCORE_MAX,
    UNCORE_MIN,
    WAKE_LATENCY,
)
from ktfleet.plan.stack import changes as stack
from ktfleet.plan.storage import LEAST_FREE
from ktfleet.plan.weights import fstab, proofs
from ktfleet.plan.weights.changes import program
from ktfleet.server.job import identity
from ktfleet.sources import Weights
from tests.trees import CPU_FLAGS, CPU_MODEL, Numbering, pus

GIB = 1024**3
DRIVER = "580.95.05"


def workstation(
    *, numbering: Numbering = "linear", node_gib: tuple[float, ...] = (126, 126), **seats: Any
) -> HostState:
    """A freshly installed workstation of the fleet; `seats` as in trees.pus."""
    found = pus(numbering=numbering, **seats)
    siblings: dict[tuple[int, int], list[int]] = {}
    for pu in found:
        siblings.setdefault((pu.socket, pu.core), []).append(pu.cpu)
    cpus = [
        {
            "cpu": pu.cpu,
            "core": pu.core_id,
            "socket": pu.socket,
            "node": pu.node,
            "siblings": siblings[pu.socket, pu.core],
        }
        for pu in found
    ]
    nodes = [
        {
            "node": node,
            "cpus": [pu.cpu for pu in found if pu.node == node],
            "mem_total": int(size * GIB),
            "mem_free": int(size * GIB),
        }
        for node, size in enumerate(node_gib)
    ]
    return HostState.model_validate({**FRESH, "cpus": cpus, "nodes": nodes})


FRESH: dict[str, Any] = {
    "schema": SCHEMA,
    "os": {"id": "debian", "version_id": "12"},
    "kernel": {"release": "6.1.0", "boot_id": "a", "cmdline": "BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro quiet"},
    "cpu_model": CPU_MODEL,
    "cpu_flags": CPU_FLAGS.split(),
    "mem_total": 252 * GIB,
    "boot": {"loader": "grub", "next_cmdline": "root=UUID=1 ro quiet"},
    "sysctl": {"kernel.numa_balancing": "1", "vm.zone_reclaim_mode": "0", "vm.swappiness": "60"},
    "files": {**dict.fromkeys(paths()), STACK_PROGRAM: None, SERVER_PROGRAM: None},
    "links": {
        STACK: None,
        SYSTEM_PYTHON: "python3.11",
        **dict.fromkeys((*(unit_file(row.key) for row in TABLE if row.writer is Writer.MASK), BOOT_UNIT_ENABLED)),
        **dict.fromkeys((PERSISTENCED_ENABLED, POWER_LIMIT_ENABLED, SERVER_ENABLED, FRONT_ENABLED)),
        **dict.fromkeys(TIME_SERVICES),
        TIME_SERVICES[0]: "/lib/systemd/system/systemd-timesyncd.service",
    },
    "texts": dict.fromkeys((COMPACTED, LOCK, SERVER_STARTED, SERVER_PROGRESS)),
    "mounts": {
        path: {"mount": "/", "device": "/dev/nvme0n1p2", "type": "ext4", "read_only": False, "free": 400 * GIB}
        for path in LEAST_FREE
    },
    "displays": [{"address": "0000:3b:00.0", "vendor": "10de", "device": "2b85"}],
    "cpufreq_driver": "intel_pstate",
    "cloud_init": "absent",
    "packages": {"interrupted": False},
    "apt": {},
    "journald": {},
    "users": {},
    "groups": {},
    "folders": {account.HOME: None, STACK_CACHE: None},
    "units": {IRQBALANCE_UNIT: {"active": True}, SERVER_UNIT: {"active": False}, FRONT_UNIT: {"active": False}},
    "sysfs": {
        THP_ENABLED: "always [madvise] never",
        THP_DEFRAG: "always defer defer+madvise [madvise] never",
        **{NODE_HUGEPAGES.replace("node*", f"node{node}"): "0" for node in (0, 1)},
        **{UNCORE_MAX.replace("package_*_die_*", f"package_{n:02d}_die_00"): "2400000" for n in (0, 1)},
        **{UNCORE_MIN.replace("package_*_die_*", f"package_{n:02d}_die_00"): "1200000" for n in (0, 1)},
        TURBO_OFF: "0",
        DEFAULT_IRQ_AFFINITY: "ffff,ffffffff,ffffffff",
        POSSIBLE_CPUS: "0-79",
        SMT_CONTROL: "on",
        **{EPP.replace("cpu*", f"cpu{cpu}"): "balance_performance" for cpu in range(80)},
        **{GOVERNOR.replace("cpu*", f"cpu{cpu}"): "powersave" for cpu in range(80)},
    },
}
"""Everything but CPUs and nodes, as a fresh Debian 12 shows it."""


def converged(plan: Plan) -> HostState:
    """The state that a fresh workstation has when the plan has been applied to it."""
    state = workstation()
    wanted = {setting.key: setting.wanted for setting in plan.settings}
    cmdline = " ".join(f"{key}={wanted[key]}" for key in OPT_INS if key in wanted)

    limited = plan.driver is not None and plan.driver.wanted.power_limit_w is not None
    balancer = Unit(active=True, environment={BANNED_CPUS: wanted[BANNED_CPUS]})

    def applied(path: str, text: str) -> str:
        return next((value for key, value in wanted.items() if fnmatchcase(path, key)), text)

    made = state.model_copy(
        update={
            "sysctl": {name: applied(name, text) for name, text in state.sysctl.items()},
            "sysfs": {path: applied(path, text) for path, text in state.sysfs.items()},
            "files": {
                **{path: render(plan, path).sha256 for path in paths()},
                **({plan.driver.keyring: "its digest"} if plan.driver else {}),
                **({STACK_PROGRAM: stack.program().sha256} if plan.stack else {}),
                **({SERVER_PROGRAM: server.program().sha256} if plan.server else {}),
                **{file.path: file.sha256 for file in overlay.files(plan)},
            },
            "links": {
                **dict.fromkeys(state.links, "/dev/null"),
                BOOT_UNIT_ENABLED: BOOT_UNIT_PATH,
                PERSISTENCED_ENABLED: f"/lib/systemd/system/{PERSISTENCED_UNIT}" if plan.driver else None,
                POWER_LIMIT_ENABLED: POWER_LIMIT if limited else None,
                SERVER_ENABLED: unit_file(SERVER_UNIT) if plan.server else None,
                FRONT_ENABLED: unit_file(FRONT_UNIT) if plan.fronted else None,
                SYSTEM_PYTHON: state.links[SYSTEM_PYTHON],
                STACK: plan.stack.job.folder if plan.stack else None,
            },
            "texts": {**state.texts, **({plan.stack.job.complete: plan.stack.job.name} if plan.stack else {})},
            "nvidia": Nvidia(loaded=DRIVER, on_disk=DRIVER, license=OPEN_LICENCE) if plan.driver else Nvidia(),
            "packages": state.packages.model_copy(update={"installed": _packages(plan)}),
            "apt": {s.key: s.wanted for s in plan.of(Writer.APT)},
            "journald": {s.key: s.wanted for s in plan.of(Writer.JOURNALD)},
            "users": {account.ACCOUNT: account.WANTED},
            "groups": {account.ACCOUNT: account.NUMBER},
            "folders": {
                **state.folders,
                account.HOME: Folder(uid=account.NUMBER, gid=account.NUMBER, mode=account.HOME_MODE),
            },
            "units": {**state.units, IRQBALANCE_UNIT: balancer},
            "before": {**{key: {} for key in wanted}, "files": dict.fromkeys(paths())},
            "kernel": state.kernel.model_copy(update={"cmdline": cmdline}),
            "boot": state.boot.model_copy(update={"next_cmdline": cmdline}),
        }
    )
    return serving(plan, made) if plan.server else made


def served(recipe: str = "dsv4-flash-amxint4", **config: Any) -> Plan:
    """A plan of the workstation that serves."""
    wanted = Workstation(data=Data(mount="/srv/models", label="models"), weights=Weights(), **config)
    return make(workstation(), wanted, recipes.load(recipe))


def with_data_disk(state: HostState, plan: Plan, *, weights: bool = True) -> HostState:
    """The same host with the plan's data disk mounted, the service's user its owner; `weights`: complete ones on it."""
    data, job = plan.config.data, plan.weights
    assert data is not None
    mount = Mount(mount=data.mount, device="/dev/sdb1", type="ext4", read_only=False, size=2000 * GIB)
    files = (
        {} if job is None else {WEIGHTS: program().sha256, **dict.fromkeys(proofs(job), "proof" if weights else None)}
    )
    made = state.model_copy(
        update={
            "mounts": {**state.mounts, data.mount: mount},
            "folders": {**state.folders, data.mount: Folder(uid=account.NUMBER, gid=account.NUMBER, mode="0755")},
            "links": {**state.links, data.device: "../../sdb1"},
            "texts": {**state.texts, FSTAB: f"UUID=1 / ext4 defaults 0 1\n{fstab.line(data)}"},
            "files": {**state.files, FSTAB: "its digest", **files},
            "packages": state.packages.model_copy(
                update={"installed": {**state.packages.installed, "git": "1:2", "rsync": "3"}}
            ),
        }
    )
    return serving(plan, made) if plan.server and weights and state.units[SERVER_UNIT].active else made


def _packages(plan: Plan) -> dict[str, str]:
    """What a host has whose driver and toolkit are installed."""
    made = plan.driver
    if made is None:
        return {}
    driver = {name: f"{DRIVER}-1" for name in made.driver if not name.startswith("linux-")}
    return {**dict.fromkeys(made.packages, "6.1.164-1"), **driver}


def serving(plan: Plan, state: HostState) -> HostState:
    """The same host while the server runs, as the plan wants it."""
    wanted = {setting.key: setting.wanted for setting in plan.settings}
    tunables = {GLIBC_TUNABLES: wanted[GLIBC_TUNABLES]} if GLIBC_TUNABLES in wanted else {}
    unit = Unit(active=True, memory_swap_max=wanted[MEMORY_SWAP_MAX], environment=tunables)
    latency = wanted.get(WAKE_LATENCY)
    told = {}
    if plan.server:
        link = state.links.get(plan.server.stack)
        started = json.dumps(identity(plan.server, link, state.files.get))
        told = {SERVER_STARTED: started, SERVER_PROGRESS: json.dumps({"state": "done"})}
    return state.model_copy(
        update={
            "units": {**state.units, SERVER_UNIT: unit, FRONT_UNIT: Unit(active=plan.fronted)},
            "texts": {**state.texts, COMPACTED: wanted[COMPACTION], **told},
            "cpu_dma_latency_us": int(latency) if latency else 2_000_000_000,
        }
    )


@st.composite
def hosts(draw: st.DrawFn) -> HostState:
    """Any host whose sibling and node lists are consistent: CPUs numbered at random, cores of 1 or 2 PUs."""
    nodes = draw(st.integers(1, 4))
    cores = [(node, draw(st.integers(1, 2))) for node in range(nodes) for _ in range(draw(st.integers(1, 8)))]
    numbers = draw(st.permutations(range(sum(threads for _, threads in cores))))
    cpus, start = [], 0
    for node, threads in cores:
        group = sorted(numbers[start : start + threads])
        start += threads
        cpus += [{"cpu": cpu, "socket": node, "node": node, "siblings": group} for cpu in group]
    memory = st.one_of(st.none(), st.integers(0, 400 * GIB))
    found = [{"node": node, "cpus": [], "mem_total": draw(memory)} for node in range(nodes)]
    return HostState.model_validate({**FRESH, "cpus": sorted(cpus, key=lambda c: c["cpu"]), "nodes": found})


@st.composite
def broken_hosts(draw: st.DrawFn) -> HostState:
    """A workstation of 2 x 4 x 2 whose firmware lies: some CPUs have another sibling list, node, or are missing."""
    state = workstation(cores=4)
    cpus = list(state.cpus)
    numbers = st.integers(0, len(cpus) - 1)
    for index in draw(st.sets(numbers, max_size=3)):
        change = draw(st.sampled_from(("siblings", "node", "socket", "gone", "swap")))
        if change == "swap":
            # Another CPU's place, whole: each list may still look right by itself.
            other = cpus[draw(numbers)]
            update = {"siblings": other.siblings, "node": other.node, "socket": other.socket}
            cpus[index] = cpus[index].model_copy(update=update)
            continue
        wrong = {"siblings": tuple(sorted(draw(st.sets(numbers, min_size=1, max_size=3)))), "node": 0, "socket": 1}
        cpus[index] = cpus[index].model_copy(update={change: wrong[change]} if change in wrong else {"cpu": -1})
    return state.model_copy(update={"cpus": tuple(cpu for cpu in cpus if cpu.cpu >= 0)})
