"""Why a host is not served: everything that is wrong, at once, before anything is touched.

Judges what was read; what could not be read is in unknown.py.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import account, cores, guard_rails, memory, settings, storage, topology
from ktfleet.plan.crossings import Subject
from ktfleet.plan.gpu import refusals as gpu
from ktfleet.plan.overlay import refusals as overlay
from ktfleet.plan.places import SERVER_UNIT
from ktfleet.plan.stack import refusals as stack
from ktfleet.plan.weights import refusals as weights
from ktfleet.problem import Problem
from ktfleet.recipes import GIB, Recipe

SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04", "26.04")}
"""os-release ID -> VERSION_ID: glibc 2.35 or newer, and packages for the driver and the stack."""

LEAST_GLIBC = (2, 35)
"""kt-kernel 0.7.2's wheels, and glibc's hugetlb tunable."""

EVEN_SHARE = 0.9
"""The smallest node must have this share of the largest: firmware and kernel take a few GiB, mostly of node 0."""


def refusals(state: HostState, config: Workstation, recipe: Recipe, need: memory.Memory) -> tuple[Problem, ...]:
    """Everything that is wrong with this host for this configuration, in the order a person would fix it."""
    return (
        *_distribution(state),
        *_glibc(state),
        *topology.problems(state, config),
        *_core_counts(state, config),
        *_memoryless(state),
        *_uneven_memory(state),
        *_flags(state, recipe),
        # What a node needs follows from the number of pools.
        *(memory.too_small(state, need, recipe) if topology.placed(state) else ()),
        *memory.card_too_small(config.gpu, recipe),
        *_no_workers(state, config),
        *_cgroup(state, need),
        *storage.problems(state, config),
        *account.problems(state),
        *weights.problems(state, config, recipe),
        *stack.problems(state, config),
        *overlay.problems(recipe),
        *gpu.problems(state, config),
        *guard_rails.problems(Subject(state, config, recipe, need)),
        *_command_line(state, config),
    )


def _distribution(state: HostState) -> Iterator[Problem]:
    name, version = state.os.id, state.os.version_id
    if name is None or (name in SUPPORTED and version in SUPPORTED[name]):
        return
    wanted = "; ".join(f"{known} {', '.join(versions)}" for known, versions in SUPPORTED.items())
    yield Problem(
        "unsupported distribution", f"{name} {version or 'without a version'}", wanted, "install one of these"
    )


def _glibc(state: HostState) -> Iterator[Problem]:
    if state.glibc is None:
        return
    seen = tuple(int(part) for part in re.findall(r"\d{1,6}", state.glibc)[:2])
    if seen < LEAST_GLIBC:
        wanted = ".".join(map(str, LEAST_GLIBC))
        yield Problem("glibc is too old for kt-kernel", state.glibc, f"{wanted} or newer", "install a newer release")


def _no_workers(state: HostState, config: Workstation) -> Iterator[Problem]:
    """Everything was read, and still no core is left for a worker."""
    if not topology.placed(state):
        return
    division = cores.assign(state, config.cpuinfer)
    if state.cpus and state.nodes and not division.most:
        counts = ", ".join(f"{len(c)} on node {n}" for n, c in cores.physical_cores(state).items())
        do = "give each node cores; without hyperthreads one of them stays free for the other threads"
        yield Problem("no core is left for a worker", f"physical cores: {counts}", "at least one a node", do)


def _core_counts(state: HostState, config: Workstation) -> Iterator[Problem]:
    """A core or two may be missing; another count is another machine."""
    if not topology.placed(state):
        return
    wanted = config.hardware.cores_per_socket
    socket_of = {cpu.cpu: cpu.socket for cpu in state.cpus}
    found = [core for group in cores.physical_cores(state).values() for core in group]
    counts = Counter(socket_of[core[0]] for core in found)
    for socket, seen in sorted((s, n) for s, n in counts.items() if s is not None):
        if not wanted - cores.MOST_LOST_CORES <= seen <= wanted:
            yield Problem(
                f"wrong number of physical cores on socket {socket}",
                str(seen),
                str(wanted),
                "BIOS > Processor: enable all cores, or correct hardware.cores_per_socket in the inventory",
            )


def _memoryless(state: HostState) -> Iterator[Problem]:
    for node in state.nodes:
        if node.mem_total == 0:
            do = "put DIMMs on this socket: its weights must lie beside it"
            yield Problem(f"node {node.node} has no memory", "0 GiB", "half of the machine's memory", do)


def _uneven_memory(state: HostState) -> Iterator[Problem]:
    """Half of the weights lie on each node: the smaller one decides, and its channels are fewer."""
    sizes = {node.node: node.mem_total for node in state.nodes if node.mem_total}
    if not sizes or min(sizes.values()) >= max(sizes.values()) * EVEN_SHARE:
        return
    seen = ", ".join(f"{size / GIB:.1f} GiB on node {node}" for node, size in sizes.items())
    yield Problem("memory is uneven", seen, "the same on each node", "move DIMMs: as many, of the same size, a socket")


def _flags(state: HostState, recipe: Recipe) -> Iterator[Problem]:
    if state.cpu_flags is None:
        return
    missing = [flag for flag in recipe.needed_flags if flag not in state.cpu_flags]
    hidden = [flag for flag in missing if flag in (state.cpu_flags_cpuid or ())]
    if hidden:
        do = "remove clearcpuid= and noxsave from the kernel command line"
        yield Problem(f"the kernel hides {', '.join(hidden)}", "CPUID has it, /proc/cpuinfo has not", "both", do)
    lacking = [flag for flag in missing if flag not in hidden]
    if lacking:
        yield Problem(
            f"the CPU cannot run {recipe.method}",
            f"no {', '.join(lacking)} in the flags of {state.cpu_model or 'this CPU'}",
            ", ".join(recipe.needed_flags),
            "enable AVX-512 in the BIOS or hypervisor, or choose a recipe for this CPU",
        )


def _cgroup(state: HostState, need: memory.Memory) -> Iterator[Problem]:
    """A limit that somebody put on the server's unit or its slice. Pages of a pool are not counted by it."""
    server = state.units.get(SERVER_UNIT)
    if server is None:
        return
    wanted = len(state.nodes) * max(0, need.shard_bytes - need.pool_bytes)
    for name, text in (("memory.max", server.memory_max), ("memory.high", server.memory_high)):
        if text and text.isdecimal() and int(text) < wanted:
            do = f"remove Memory{name[7:].title()}= from {SERVER_UNIT} and system.slice (`systemctl cat` shows them)"
            least = f"at least {wanted / GIB:.1f} GiB of weights"
            yield Problem("a cgroup limits the server's memory", f"{name} {int(text) / GIB:.1f} GiB", least, do)
    if server.cpus:
        do = f"remove AllowedCPUs= from {SERVER_UNIT} and system.slice: workers cannot bind to CPUs that it hides"
        yield Problem("a cgroup hides CPUs from the server", f"cpuset.cpus {server.cpus}", "all of them", do)


def _command_line(state: HostState, config: Workstation) -> Iterator[Problem]:
    for name in config.kernel_command_line:
        if name not in settings.OPT_INS:
            close = difflib.get_close_matches(name, settings.OPT_INS, n=1)
            do = f"did you mean '{close[0]}'?" if close else "remove it"
            yield Problem("kernel_command_line", f"'{name}'", f"one of {', '.join(settings.OPT_INS)}", do)
    if config.kernel_command_line and state.boot.loader not in (None, "grub"):
        do = "remove kernel_command_line, or boot with GRUB"
        yield Problem("the kernel command line cannot be set", state.boot.loader or "", "GRUB", do)
