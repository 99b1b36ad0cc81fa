"""What a trial of the placement compares: ktfleet's division of the CPUs, and those that it is to be better than."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ktfleet.host.state import HostState
from ktfleet.measure.trial import Order
from ktfleet.plan.cores import assign, physical_cores
from ktfleet.recipes import Recipe

EXPERTS = 64
"""Of the layer that is tried: far more than the caches hold. All 256 of the real one are 3.2 GB."""
ROUNDS = 40
"""With them three arrangements take a minute."""


@dataclass(frozen=True)
class Arm:
    """workers: threads of each node's pool. others: the CPUs where every other thread may run."""

    name: str
    workers: tuple[int, ...]
    others: tuple[int, ...]


def losing(state: HostState) -> tuple[Arm, ...]:
    """The plan, beside what guides and habits lead to."""
    plan, everywhere, cores = _planned(state), _everywhere(state), _cores(state)
    one = next(cpus[0] for cpus in assign(state).worker_cpus.values())
    return (
        plan,
        Arm("workers on all cores, others anywhere", cores, everywhere),
        Arm("others on a worker's core", plan.workers, (one,)),
        Arm("twice as many workers as cores", tuple(2 * count for count in cores), everywhere),
    )


def others(state: HostState) -> tuple[Arm, ...]:
    """Where the other threads may run: on the workers' siblings, on cores kept back for them, anywhere.

    Without hyperthreads there are no siblings: then the cores kept back are the plan.
    """
    plan, cores = _planned(state), _cores(state)
    kept = tuple(cpu for node in physical_cores(state).values() for core in node[min(cores) - 1 :] for cpu in core)
    one_less = Arm("others on cores kept back", tuple(count - 1 for count in cores), kept)
    unpinned = Arm("others anywhere", plan.workers, _everywhere(state))
    if plan.workers == one_less.workers:
        return (Arm(one_less.name, plan.workers, plan.others), unpinned)
    return (Arm("others on the workers' siblings", plan.workers, plan.others), one_less, unpinned)


def order(recipe: Recipe, arms: tuple[Arm, ...], rounds: int = ROUNDS) -> Order:
    """One layer of the recipe's shape under these arrangements."""
    real = recipe.experts
    size = (real.per_token, real.hidden, real.intermediate, real.bytes)
    return Order(tuple(map(asdict, arms)), recipe.method, EXPERTS, *size, rounds)


def possible(state: HostState) -> bool:
    """Whether the plan has a worker on each node, and a core is left beside it."""
    return assign(state).cpuinfer > 0 and min(_cores(state), default=0) > 1


def _planned(state: HostState) -> Arm:
    division = assign(state)
    return Arm("the plan", tuple(len(cpus) for cpus in division.worker_cpus.values()), division.other_cpus)


def _cores(state: HostState) -> tuple[int, ...]:
    """Of each node, as many as every node has: pools are even."""
    found = physical_cores(state)
    return (min(map(len, found.values()), default=0),) * len(found)


def _everywhere(state: HostState) -> tuple[int, ...]:
    return tuple(cpu.cpu for cpu in state.cpus)
