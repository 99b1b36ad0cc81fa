from typing import Any

import pytest
from hypothesis import given

from ktfleet import plan, recipes
from ktfleet.config import Hardware, Hugepages, Workstation
from ktfleet.host.state import OS, Boot, Cpu, HostState, Kernel, Unit
from ktfleet.plan.places import BEFORE, SERVER_UNIT
from ktfleet.plan.storage import LEAST_FREE
from tests.states import GIB, broken_hosts, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def refused(state: HostState, **wanted: Any) -> list[str]:
    return [str(problem) for problem in plan.make(state, Workstation(**wanted), RECIPE).refusals]


def test_the_fleets_workstation_is_admitted() -> None:
    made = plan.make(workstation(), Workstation(), RECIPE)
    assert (made.refusals, made.unknown, made.notes) == ((), (), ())


def test_a_missing_socket() -> None:
    found = refused(workstation(sockets=1, node_gib=(252,)))
    assert found[0] == (
        "wrong number of CPU sockets: seen 1, wanted 2; "
        "reseat or replace the missing CPU (hardware.sockets says 2)"
    )  # fmt: skip


def test_sub_numa_clustering_names_the_bios_option() -> None:
    found = refused(workstation(nodes_per_socket=2, node_gib=(63, 63, 63, 63)))
    assert found[0] == (
        "sub-NUMA clustering is on: seen 4 nodes on 2 sockets, wanted 2; "
        "BIOS > Processor (or Chipset) > Sub NUMA Clustering (SNC): disable"
    )


def test_numa_off() -> None:
    state = workstation(node_gib=(252,))
    one = state.model_copy(update={"cpus": tuple(cpu.model_copy(update={"node": 0}) for cpu in state.cpus)})
    assert refused(one)[0].startswith("NUMA is off: seen 1 node on 2 sockets, wanted 2; BIOS > Memory:")


def test_node_numbers_with_a_gap() -> None:
    state = workstation()
    second = state.nodes[1].model_copy(update={"node": 3})
    moved = tuple(cpu.model_copy(update={"node": 3 if cpu.node else 0}) for cpu in state.cpus)
    found = refused(state.model_copy(update={"nodes": (state.nodes[0], second), "cpus": moved}))
    assert found == ["NUMA nodes are not numbered from 0: seen 0, 3, wanted 0 to 1; "
                     "check which CPU or memory is off"]  # fmt: skip


def test_a_node_without_memory_is_one_problem() -> None:
    assert refused(workstation(node_gib=(252, 0))) == [
        "node 1 has no memory: seen 0 GiB, wanted half of the machine's memory; "
        "put DIMMs on this socket: its weights must lie beside it"
    ]


@pytest.mark.parametrize(("cores", "lost", "admitted"), [
    (20, set(), True),
    (20, {(0, 3)}, True),
    (20, {(0, 3), (0, 4)}, True),
    (20, {(0, 3), (0, 4), (0, 5)}, False),
    (16, set(), False),
    (24, set(), False),
])  # fmt: skip
def test_core_counts(cores: int, lost: set[tuple[int, int]], admitted: bool) -> None:
    found = refused(workstation(cores=cores, lost=lost))
    assert (found == []) == admitted
    assert all("wrong number of physical cores" in line for line in found)


def test_another_machine_is_configuration() -> None:
    assert refused(workstation(cores=16), hardware=Hardware(cores_per_socket=16)) == []


def test_missing_cpu_flags() -> None:
    state = workstation()
    flags = tuple(flag for flag in state.cpu_flags or () if flag != "avx512bw")
    assert refused(state.model_copy(update={"cpu_flags": flags})) == [
        "the CPU cannot run AMXINT4: seen no avx512bw in the flags of Intel(R) Xeon(R) Gold 6138 CPU @ 2.00GHz, "
        "wanted avx512f, avx512bw; enable AVX-512 in the BIOS or hypervisor, or choose a recipe for this CPU"
    ]


@pytest.mark.parametrize("name", recipes.names())
def test_no_recipe_is_served_without_its_instructions(name: str) -> None:
    state, recipe = workstation(), recipes.load(name)
    for flag in recipe.needed_flags:
        without = tuple(each for each in state.cpu_flags or () if each != flag)
        (problem,) = plan.make(state.model_copy(update={"cpu_flags": without}), Workstation(), recipe).refusals
        assert problem.what == f"the CPU cannot run {recipe.method}"
        assert problem.seen.startswith(f"no {flag} in the flags of")


@pytest.mark.parametrize(("name", "version", "line"), [
    ("debian", "12", None), ("debian", "13", None), ("ubuntu", "22.04", None), ("ubuntu", "24.04", None),
    ("debian", "11", "debian 11"), ("ubuntu", "23.10", "ubuntu 23.10"), ("fedora", "44", "fedora 44"),
    ("debian", None, "debian without a version"),
])  # fmt: skip
def test_distributions(name: str, version: str | None, line: str | None) -> None:
    found = refused(workstation().model_copy(update={"os": OS(id=name, version_id=version)}), gpu=None)
    wanted = f"unsupported distribution: seen {line}, wanted debian 12, 13; ubuntu 22.04, 24.04, 26.04; install one"
    assert found == [] if line is None else found[0].startswith(wanted)


@pytest.mark.parametrize(("version", "good"), [
    ("2.35", True), ("2.41", True), ("3.0", True), ("2.34", False), ("2.31", False), (None, True),
])  # fmt: skip
def test_glibc(version: str | None, good: bool) -> None:
    assert (refused(workstation().model_copy(update={"glibc": version})) == []) == good


def test_uneven_memory_names_both_sizes() -> None:
    assert refused(workstation(node_gib=(125.5, 122))) == [], "what firmware takes does not count"
    assert refused(workstation(node_gib=(188, 94)))[0] == (
        "memory is uneven: seen 188.0 GiB on node 0, 94.0 GiB on node 1, wanted the same on each node; "
        "move DIMMs: as many, of the same size, a socket"
    )


def test_a_cgroup_that_starves_the_server() -> None:
    state = workstation()

    def limited(**limits: str) -> HostState:
        return state.model_copy(update={"units": {SERVER_UNIT: Unit(active=False, **limits)}})

    (line,) = refused(limited(memory_max=str(64 * GIB)))
    assert line == (
        "a cgroup limits the server's memory: seen memory.max 64.0 GiB, wanted at least 129.5 GiB of weights; "
        "remove MemoryMax= from ktfleet-server.service and system.slice (`systemctl cat` shows them)"
    )
    assert "remove MemoryHigh=" in refused(limited(memory_high="1024"))[0]
    assert refused(limited(memory_max="max", memory_high=str(200 * GIB))) == []
    assert refused(limited(memory_max=str(64 * GIB)), hugepages=Hugepages(policy="hugetlb")) == [], "a pool is apart"
    assert refused(limited(cpus="0-19"))[0].startswith("a cgroup hides CPUs from the server: seen cpuset.cpus 0-19")


def test_a_flag_that_the_kernel_hides() -> None:
    state = workstation()
    flags = tuple(flag for flag in state.cpu_flags or () if flag != "avx512bw")
    (line,) = refused(state.model_copy(update={"cpu_flags": flags, "cpu_flags_cpuid": state.cpu_flags}))
    assert line.startswith("the kernel hides avx512bw: seen CPUID has it, /proc/cpuinfo has not, wanted both; remove")


def test_a_hidden_flag_does_not_hide_a_missing_one() -> None:
    state = workstation()
    flags = tuple(flag for flag in state.cpu_flags or () if flag not in ("avx512bw", "avx512f"))
    hidden, missing = refused(state.model_copy(update={"cpu_flags": flags, "cpu_flags_cpuid": ("avx512f",)}))
    assert "the kernel hides avx512f" in hidden
    assert "seen no avx512bw in the flags" in missing


def test_an_unread_package_list_is_unknown() -> None:
    state = workstation().model_copy(update={"unreadable": {"/var/lib/dpkg/status": "permission denied"}})
    (problem,) = plan.make(state, Workstation(), RECIPE).unknown
    assert str(problem).startswith("the installed packages cannot be read: seen permission denied")


def test_everything_wrong_is_said_at_once() -> None:
    state = workstation(nodes_per_socket=2, node_gib=(30, 30, 0, 30)).model_copy(update={"cpu_flags": ("avx2",)})
    found = refused(state, cpuinfer=81, kernel_command_line=("mitigation",))
    kinds = ["sub-NUMA", "node 2 has no memory", "cannot run AMXINT4", "node 0 has too little", "node 1 has too little",
             "node 3 has too little", "cpuinfer is too high", "kernel_command_line"]  # fmt: skip
    assert len(found) == len(kinds)
    assert all(kind in line for kind, line in zip(kinds, found, strict=True))


def test_an_unknown_opt_in_gets_a_suggestion() -> None:
    assert refused(workstation(), kernel_command_line=("mitigation",)) == [
        "kernel_command_line: seen 'mitigation', wanted one of transparent_hugepage, mitigations; "
        "did you mean 'mitigations'?"
    ]


def test_disagreeing_sibling_lists() -> None:
    """CPU 1 says it shares a core with 41, 41 says it is alone: both would become workers of one core."""
    state = workstation()
    alone = tuple(cpu.model_copy(update={"siblings": (41,)}) if cpu.cpu == 41 else cpu for cpu in state.cpus)
    assert refused(state.model_copy(update={"cpus": alone}))[0] == (
        "the sibling lists disagree: seen CPU 1 with [1, 41], CPU 41 otherwise, wanted one list for all of a core; "
        "update the BIOS"
    )


def test_siblings_in_two_nodes() -> None:
    """A lost core a socket, and a pair that sits in both: each would get two workers."""
    state = workstation(cores=19)
    swapped = {0: 1, 19: 0}
    cpus = tuple(
        cpu.model_copy(update={"node": swapped[cpu.cpu], "socket": swapped[cpu.cpu]}) if cpu.cpu in swapped else cpu
        for cpu in state.cpus
    )
    found = refused(state.model_copy(update={"cpus": cpus}))
    assert found[0].startswith("the sibling lists disagree: seen siblings [0, 38] of CPU 0 in several sockets or nodes")


def test_a_cpu_that_is_listed_twice() -> None:
    state = workstation()
    assert refused(state.model_copy(update={"cpus": (*state.cpus, state.cpus[0])}))[0].startswith(
        "the CPU list is broken: seen a CPU twice"
    )


@given(broken_hosts())
def test_an_admitted_host_never_gets_two_workers_on_a_core(state: HostState) -> None:
    """Checked by the chip's own core numbers, whatever the sibling lists say."""
    made = plan.make(state, Workstation(hardware=Hardware(sockets=2, cores_per_socket=4)), RECIPE)
    if made.refusals or made.unknown:
        return
    place = {cpu.cpu: (cpu.socket, cpu.core, cpu.node) for cpu in state.cpus}
    workers = [(place[cpu], node) for node, cpus in made.cores.worker_cpus.items() for cpu in cpus]
    assert len({worker for worker, _ in workers}) == len(workers) == made.cores.cpuinfer > 0
    assert all(worker[2] == node for worker, node in workers)


def test_an_offline_socket_is_not_called_sub_numa_clustering() -> None:
    state = workstation()
    found = refused(state.model_copy(update={"cpus": tuple(cpu for cpu in state.cpus if cpu.socket == 0)}))
    assert found[0].startswith("wrong number of CPU sockets: seen 1, wanted 2")
    assert found[1].startswith("NUMA node 1 has no CPUs: seen 0, wanted 20 cores")
    assert not any("clustering" in line for line in found)


def test_a_node_across_sockets() -> None:
    state = workstation()
    moved = tuple(cpu.model_copy(update={"node": 0}) if cpu.cpu in (20, 60) else cpu for cpu in state.cpus)
    assert (
        "NUMA node 0 spans sockets: seen CPUs of sockets 0, 1" in refused(state.model_copy(update={"cpus": moved}))[0]
    )


def test_no_core_left_for_a_worker() -> None:
    config = {"hardware": Hardware(cores_per_socket=1)}
    found = refused(workstation(cores=1, threads=1), **config)
    assert found == [
        "no core is left for a worker: seen physical cores: 1 on node 0, 1 on node 1, wanted at least one a node; "
        "give each node cores; without hyperthreads one of them stays free for the other threads"
    ]


def test_a_cpu_in_no_node_keeps_the_probes_reason() -> None:
    state = workstation()
    lost = (*state.cpus[:-1], state.cpus[-1].model_copy(update={"node": None}))
    update = {"cpus": lost, "unreadable": {"cpu79.node": "no node lists this CPU"}}
    (problem,) = plan.make(state.model_copy(update=update), Workstation(), RECIPE).unknown
    assert problem.seen == "no node lists this CPU for CPU 79"


@pytest.mark.parametrize(("boot", "what"), [
    ({"loader": None}, "the boot loader cannot be read"),
    ({"loader": "grub", "next_cmdline": None}, "the command line of the next boot cannot be read"),
])  # fmt: skip
def test_an_opt_in_needs_a_known_boot(boot: dict[str, Any], what: str) -> None:
    state = workstation().model_copy(update={"boot": Boot(**boot)})
    assert plan.make(state, Workstation(), RECIPE).unknown == ()
    made = plan.make(state, Workstation(kernel_command_line=("mitigations",)), RECIPE)
    assert [problem.what for problem in made.unknown] == [what]


def test_a_command_line_needs_grub() -> None:
    state = workstation()
    other = state.model_copy(update={"boot": state.boot.model_copy(update={"loader": "systemd-boot"})})
    assert refused(other) == [], "without an opt-in the boot loader does not matter"
    assert refused(other, kernel_command_line=("mitigations",)) == [
        "the kernel command line cannot be set: seen systemd-boot, wanted GRUB; "
        "remove kernel_command_line, or boot with GRUB"
    ]


def test_what_was_not_read_is_unknown_and_never_a_refusal() -> None:
    made = plan.make(HostState(schema=1), Workstation(), RECIPE)
    assert made.refusals == ()
    assert [problem.what for problem in made.unknown] == [
        "the distribution cannot be read",
        "the CPUs cannot be read",
        "the NUMA nodes cannot be read",
        "the CPU flags cannot be read",
        "the boot id cannot be read",
        "the kernel command line cannot be read",
        "whether dpkg was interrupted cannot be read",
        "the PCI devices cannot be read",
        *(f"the file system of {path} cannot be read" for path in LEAST_FREE),
        "the accounts in /etc/passwd cannot be read",
        "the accounts in /etc/group cannot be read",
    ]


@pytest.mark.parametrize("field", ["socket", "node", "siblings"])
@pytest.mark.parametrize("cpus", [range(80), range(20, 40), range(0, 80, 7)])
def test_places_that_were_not_read_refuse_nothing(field: str, cpus: range) -> None:
    state = workstation()
    gone = tuple(cpu.model_copy(update={field: None}) if cpu.cpu in cpus else cpu for cpu in state.cpus)
    made = plan.make(state.model_copy(update={"cpus": gone}), Workstation(), RECIPE)
    assert made.refusals == ()
    assert [problem.what for problem in made.unknown] == [f"the {field} of {len(cpus)} CPUs cannot be read"]


@pytest.mark.parametrize("field", ["socket", "node", "siblings"])
def test_a_cpu_without_a_place_is_unknown(field: str) -> None:
    state = workstation()
    first: Cpu = state.cpus[0].model_copy(update={field: None})
    made = plan.make(state.model_copy(update={"cpus": (first, *state.cpus[1:])}), Workstation(), RECIPE)
    assert [str(problem) for problem in made.unknown] == [
        f"the {field} of 1 CPU cannot be read: seen nothing for CPU 0, wanted a value; "
        "probe the host as root; a captured tree has to hold it"
    ]


@pytest.mark.parametrize(("update", "reasons"), [
    ({"cpu_flags": None}, {"/proc/cpuinfo": "permission denied"}),
    ({"os": OS()}, {"os": "permission denied"}),
    ({"cpus": ()}, {"cpus": "permission denied"}),
    ({"nodes": ()}, {"nodes": "permission denied"}),
    ({"kernel": Kernel(boot_id="a")}, {"/proc/cmdline": "permission denied"}),
    ({}, {BEFORE: "permission denied"}),
])  # fmt: skip
def test_the_reason_of_an_unread_input_is_told(update: dict[str, Any], reasons: dict[str, str]) -> None:
    state = workstation().model_copy(update={**update, "unreadable": reasons})
    (problem,) = plan.make(state, Workstation(), RECIPE).unknown
    assert problem.seen == "permission denied"


def test_an_unread_node_memory_is_unknown() -> None:
    state = workstation()
    nodes = (state.nodes[0], state.nodes[1].model_copy(update={"mem_total": None}))
    made = plan.make(state.model_copy(update={"nodes": nodes}), Workstation(), RECIPE)
    assert [problem.what for problem in made.unknown] == ["the memory of node 1 cannot be read"]
    assert made.refusals == ()
