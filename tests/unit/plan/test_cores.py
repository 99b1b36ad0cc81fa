from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.host.state import HostState
from ktfleet.plan import cores
from ktfleet.problem import Problem
from tests.states import hosts, workstation
from tests.trees import Numbering


def problems(state: HostState, asked: int | None) -> tuple[Problem, ...]:
    kinds = (cores.too_many, cores.without_a_spare, cores.uneven)
    return tuple(problem for kind in kinds for problem in kind(state, asked))


@pytest.mark.parametrize(
    ("numbering", "node0", "node1"),
    [
        ("linear", range(20), range(20, 40)),
        ("adjacent", range(0, 40, 2), range(40, 80, 2)),
        ("even_odd", range(0, 40, 2), range(1, 40, 2)),
    ],
)
def test_each_numbering_gives_one_pu_of_each_physical_core(numbering: Numbering, node0: range, node1: range) -> None:
    found = cores.assign(workstation(numbering=numbering))
    assert (found.pools, found.cpuinfer) == (2, 40)
    assert found.worker_cpus == {0: tuple(node0), 1: tuple(node1)}
    assert sorted(chain(node0, node1, found.other_cpus)) == list(range(80))


def test_siblings_are_left_for_the_other_threads() -> None:
    assert cores.assign(workstation()).other_cpus == tuple(range(40, 80))


def test_without_hyperthreads_a_core_a_node_is_kept_back() -> None:
    found = cores.assign(workstation(threads=1))
    assert found.cpuinfer == 38
    assert found.other_cpus == (19, 39)
    assert "hyperthreads are off" in found.notes[0]


def test_a_lost_core_keeps_the_pools_even() -> None:
    found = cores.assign(workstation(lost={(1, 7)}))
    assert found.cpuinfer == 38
    assert [len(cpus) for cpus in found.worker_cpus.values()] == [19, 19]
    assert 19 in found.other_cpus, "the core without a twin goes to the other threads"
    assert found.notes == ("uneven cores (20 on node 0, 19 on node 1): the pools stay even, "
                           "the spare ones go to the other threads",)  # fmt: skip


def test_offline_siblings_do_not_count() -> None:
    """A sibling list can name a CPU that is offline: nothing can run on it."""
    whole = workstation()
    half = whole.model_copy(update={"cpus": whole.cpus[:40]})
    assert cores.assign(half).cpuinfer == 38, "with every sibling offline, cores have to be kept back"


@pytest.mark.parametrize("asked", [2, 20, 38, 40])
def test_fewer_workers_than_allowed_are_granted(asked: int) -> None:
    state = workstation()
    assert problems(state, asked) == ()
    assert cores.assign(state, asked).cpuinfer == asked
    assert bool(cores.assign(state, asked).notes) == (asked < 40)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (80, "cpuinfer is too high: seen 80, wanted at most 40 (20+20 physical cores; "
             "a worker without a core of its own costs 10x); set cpuinfer = 40"),
        (41, "cpuinfer is too high: seen 41, wanted at most 40 (20+20 physical cores; "
             "a worker without a core of its own costs 10x); set cpuinfer = 40"),
        (39, "cpuinfer cannot be shared evenly by the pools: seen 39 over 2 pools, wanted a multiple of 2; "
             "set cpuinfer = 38"),
        (1, "cpuinfer cannot be shared evenly by the pools: seen 1 over 2 pools, wanted a multiple of 2; "
            "set cpuinfer = 2"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_refused_with_the_right_one(asked: int, line: str) -> None:
    assert [str(problem) for problem in problems(workstation(), asked)] == [line]


def test_every_core_without_a_hyperthread_beside_it() -> None:
    (line,) = map(str, problems(workstation(threads=1), 40))
    assert line == (
        "cpuinfer leaves no core for the other threads: seen 40, wanted at most 38 (20+20 physical cores without "
        "hyperthreads; sharing one with the other threads costs 4.3x); set cpuinfer = 38"
    )
    assert "cpuinfer is too high" in str(problems(workstation(threads=1), 42)[0])


@given(hosts(), st.integers(1, 80))
def test_a_wrong_number_is_one_problem(state: HostState, asked: int) -> None:
    found = cores.assign(state)
    wrong = bool(found.most) and (asked > found.most or asked % found.pools != 0)
    assert len(problems(state, asked)) == int(wrong)


def test_a_host_that_was_not_read_gets_no_workers() -> None:
    found = cores.assign(HostState(schema=1), 40)
    assert (found.pools, found.cpuinfer, found.other_cpus) == (0, 0, ())
    assert problems(HostState(schema=1), 40) == ()


@given(hosts(), st.none() | st.integers(1, 80))
def test_workers_never_share_a_core_nor_leave_their_node(state: HostState, asked: int | None) -> None:
    found = cores.assign(state, asked)
    core_of = {cpu.cpu: (cpu.node, cpu.siblings) for cpu in state.cpus}
    workers = list(chain.from_iterable(found.worker_cpus.values()))
    assert len({core_of[cpu] for cpu in workers}) == len(workers) == found.cpuinfer
    assert all(core_of[cpu][0] == node for node, cpus in found.worker_cpus.items() for cpu in cpus)
    assert len({len(cpus) for cpus in found.worker_cpus.values()}) == 1, "pools are even"
    assert sorted([*workers, *found.other_cpus]) == sorted(core_of), "every CPU is accounted for"


@given(hosts())
def test_every_node_with_workers_has_a_cpu_for_the_other_threads(state: HostState) -> None:
    found = cores.assign(state)
    node_of = {cpu.cpu: cpu.node for cpu in state.cpus}
    assert all(node in {node_of[cpu] for cpu in found.other_cpus} for node, cpus in found.worker_cpus.items() if cpus)


@given(hosts(), st.integers(1, 80))
def test_the_right_number_in_a_refusal_is_right(state: HostState, asked: int) -> None:
    for problem in problems(state, asked):
        right = int(problem.do.rpartition("= ")[2])
        assert problems(state, right) == ()
