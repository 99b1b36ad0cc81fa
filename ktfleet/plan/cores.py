"""Which CPUs kt-kernel's workers will take, and which are left for every other thread.

kt-kernel starts one pool a NUMA node and binds worker i to one PU of physical core i of its node,
whatever affinity the process has. A worker without a core of its own stays unpinned and spinning: that is
the published collapse from 28 to 2.7 tok/s (ktransformers #2088). The plan never allows one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ktfleet.host.state import HostState
from ktfleet.problem import Problem

CORES_KEPT_BACK = 1
"""Physical cores a node that carry no worker when the node has no hyperthread left for the other threads.

Measured on 16 CPUs without hyperthreads (kt_kernel 0.7.2 avx512_base, one real-size layer, 2026-12-01):
16 workers moved 9.5 GB/s, 15 moved 41.1.
"""

MOST_LOST_CORES = 2
"""Cores a socket that may be missing (a disabled or broken core) before it is another machine."""


@dataclass(frozen=True)
class Cores:
    """The division of the host's CPUs.

    pools: NUMA nodes, one worker pool each. cpuinfer: workers over all pools. most: the highest allowed.
    worker_cpus: node -> one PU of each worker's physical core. other_cpus: every other online PU: the
    siblings of the workers' cores and the cores kept back.
    """

    pools: int
    cpuinfer: int
    most: int
    worker_cpus: dict[int, tuple[int, ...]]
    other_cpus: tuple[int, ...]
    notes: tuple[str, ...] = ()


def physical_cores(state: HostState) -> dict[int, tuple[tuple[int, ...], ...]]:
    """node -> its physical cores in kt-kernel's order (lowest PU first), each as its online PUs.

    Taken from the kernel's sibling and node lists alone: numberings differ between boards. A CPU whose
    node or siblings could not be read is left out.
    """
    node_of = {cpu.cpu: cpu.node for cpu in state.cpus}
    cores: dict[int, set[tuple[int, ...]]] = {node.node: set() for node in state.nodes}
    for cpu in state.cpus:
        if cpu.node is None or cpu.siblings is None:
            continue
        pus = tuple(sorted(pu for pu in {cpu.cpu, *cpu.siblings} if node_of.get(pu) == cpu.node))
        cores.setdefault(cpu.node, set()).add(pus)
    return {node: tuple(sorted(found)) for node, found in sorted(cores.items())}


def assign(state: HostState, cpuinfer: int | None = None) -> Cores:
    """Divide the CPUs; `cpuinfer` asks for fewer workers than allowed.

    A request that is not allowed (a guard rail says why) is answered with the most that is.
    """
    cores = physical_cores(state)
    per_pool_most = min((_workers_allowed(found) for found in cores.values()), default=0)
    pools = len(cores)
    most = per_pool_most * pools
    granted = cpuinfer if cpuinfer is not None and not _refused(cpuinfer, most, pools) else most
    per_pool = granted // pools if pools else 0
    workers = {node: tuple(core[0] for core in found[:per_pool]) for node, found in cores.items()}
    taken = {pu for pus in workers.values() for pu in pus}
    others = tuple(sorted({cpu.cpu for cpu in state.cpus} - taken))
    return Cores(pools, granted, most, workers, others, _notes(cores, granted, most))


def too_many(state: HostState, cpuinfer: int | None) -> tuple[Problem, ...]:
    """More workers asked for than there are physical cores to share out evenly."""
    cores, allowed = physical_cores(state), assign(state)
    if cpuinfer is None or not allowed.most or cpuinfer <= _one_a_core(cores):
        return ()
    wanted = f"at most {allowed.most} ({_counted(cores)} physical cores; a worker without a core of its own costs 10x)"
    return (Problem("cpuinfer is too high", str(cpuinfer), wanted, _set(allowed.most)),)


def without_a_spare(state: HostState, cpuinfer: int | None) -> tuple[Problem, ...]:
    """A worker asked for on every core, where the other threads have no hyperthread to run on."""
    cores, allowed = physical_cores(state), assign(state)
    if cpuinfer is None or not 0 < allowed.most < cpuinfer <= _one_a_core(cores):
        return ()
    reason = f"{_counted(cores)} physical cores without hyperthreads; sharing one with the other threads costs 4.3x"
    what = "cpuinfer leaves no core for the other threads"
    return (Problem(what, str(cpuinfer), f"at most {allowed.most} ({reason})", _set(allowed.most)),)


def uneven(state: HostState, cpuinfer: int | None) -> tuple[Problem, ...]:
    """A number of workers that the pools cannot share."""
    allowed = assign(state)
    if cpuinfer is None or not allowed.most or cpuinfer > allowed.most or cpuinfer % allowed.pools == 0:
        return ()
    right = cpuinfer - cpuinfer % allowed.pools or allowed.pools
    what = "cpuinfer cannot be shared evenly by the pools"
    return (Problem(what, f"{cpuinfer} over {allowed.pools} pools", f"a multiple of {allowed.pools}", _set(right)),)


def _one_a_core(cores: dict[int, tuple[tuple[int, ...], ...]]) -> int:
    return min((len(found) for found in cores.values()), default=0) * len(cores)


def _counted(cores: dict[int, tuple[tuple[int, ...], ...]]) -> str:
    return "+".join(str(len(found)) for found in cores.values())


def _set(cpuinfer: int) -> str:
    return f"set cpuinfer = {cpuinfer}"


def _refused(cpuinfer: int, most: int, pools: int) -> bool:
    return not pools or cpuinfer > most or cpuinfer % pools != 0


def _workers_allowed(cores: tuple[tuple[int, ...], ...]) -> int:
    """Physical cores of one node that may carry a worker."""
    has_siblings = any(len(core) > 1 for core in cores)
    return max(0, len(cores) - (0 if has_siblings else CORES_KEPT_BACK))


def _notes(cores: dict[int, tuple[tuple[int, ...], ...]], granted: int, most: int) -> tuple[str, ...]:
    notes = []
    if granted < most:
        notes.append(f"cpuinfer: {granted} of {most} allowed workers are used")
    if any(cores.values()) and not any(len(core) > 1 for found in cores.values() for core in found):
        notes.append(f"hyperthreads are off: {CORES_KEPT_BACK} core a node is kept back for the other threads")
    if len({len(found) for found in cores.values()}) > 1:
        counts = ", ".join(f"{len(found)} on node {node}" for node, found in cores.items())
        notes.append(f"uneven cores ({counts}): the pools stay even, the spare ones go to the other threads")
    return tuple(notes)
