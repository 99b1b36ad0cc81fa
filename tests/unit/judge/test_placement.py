"""The judge of the placement: captures of real worker pools, and every fault by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.judge.placement import Wanted, begun, judge, wanted
from ktfleet.judge.placement.threads import SHOWN
from ktfleet.measure.placement_record import Record
from ktfleet.plan.cpu_lists import ranges
from ktfleet.verdict import Verdict
from tests.pools import SHARD
from tests.states import workstation
from tests.unit.measure.test_placement import captured, read

SMALL = Wanted(cores={0: (0,), 1: (1,)}, nodes={0: 0, 1: 0}, workers={0: (0,)}, others=(1,), shard_bytes=SHARD,
               policy="thp", gpu=False)  # fmt: skip
"""The machine of the captures: two CPUs without hyperthreads."""


@cache
def planned(**seats: Any) -> Wanted:
    state = workstation(**seats)
    return wanted(plan.make(state, Workstation(), recipes.load("dsv4-flash-amxint4")), state)


FLEET = planned()


def seen(of: Wanted) -> dict[str, Any]:
    """The record of a server that does as planned."""
    places = [(cpu, node, at) for node, cpus in of.workers.items() for at, cpu in enumerate(cpus)]
    names = {cpu: f"numa_{node}_{'t' if at else 'm'}_{at}" for cpu, node, at in places}
    threads = [{"tid": 100 + cpu, "name": name, "allowed": str(cpu), "last_cpu": cpu} for cpu, name in names.items()]
    rest = [{"tid": 10 + n, "name": name, "allowed": ranges(of.others), "last_cpu": of.others[0]}
            for n, name in enumerate(("sglang::schedul", "python", "cuda-EvtHandlr"))]  # fmt: skip
    memory = {"nodes": {node: int(of.shard_bytes * 1.03) for node in of.workers},
              "huge": int(of.shard_bytes * 1.9), "hugetlb": 0, "swap": 0}  # fmt: skip
    return {
        "schema": 1,
        "processes": [
            {"pid": 9, "name": "python", "threads": rest[:1]},
            {"pid": 10, "name": "sglang::schedul", "threads": [*rest, *threads], "memory": memory},
        ],
        "interrupts": [{"irq": 98, "allowed": "0-79", "effective": str(of.others[-1])}],
    }


def results(of: Wanted, record: dict[str, Any] | Record) -> dict[str, Verdict]:
    made = record if isinstance(record, Record) else Record.model_validate(record)
    return {verdict.key: verdict for verdict in judge(of, made)}


def bad(of: Wanted, record: dict[str, Any] | Record) -> dict[str, Verdict]:
    return {key: verdict for key, verdict in results(of, record).items() if not verdict.good}


def server(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["processes"][1]
    return found


def worker(record: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (thread for thread in server(record)["threads"] if thread["name"] == name)
    return found  # type: ignore[no-any-return]


def test_real_pools_as_planned_pass(tmp_path: Path) -> None:
    found = results(SMALL, read(captured("planned"), tmp_path))
    assert {key: verdict.result for key, verdict in found.items()} == {
        "workers of node 0": "pass", "other threads": "pass", "experts of node 0": "pass",
        "experts' huge pages": "pass", "the card's interrupts": "skipped",
    }  # fmt: skip
    assert found["workers of node 0"].seen == "1 on 0"


@pytest.mark.parametrize(("name", "keys", "words"), [
    ("small-pages", ["experts' huge pages"], "0%"),
    ("others-anywhere", ["thread python"], "may run on 0-1 (thread "),
    ("main-on-worker", ["thread python"], "may run on 0 (thread "),
    ("too-many-workers", ["workers of node 0", "worker numa_0_t_2", "thread python"], "may run on 0-1, ran last on "),
    ("distributor-unpinned", ["worker numa_0_m_0", "other threads"], "may run on 0-1, ran last on "),
    ("no-workers", ["workers of node 0", "other threads", "experts of node 0", "experts' huge pages"], "none"),
])  # fmt: skip
def test_each_arrangement_of_real_pools_has_its_verdict(name: str, keys: list[str], words: str, tmp_path: Path) -> None:
    found = bad(SMALL, read(captured(name), tmp_path))
    assert list(found) == keys
    assert any(words in verdict.seen for verdict in found.values())
    assert all(verdict.wanted and verdict.do for verdict in found.values())


def test_a_server_as_planned_passes_on_the_fleets_machine() -> None:
    found = results(FLEET, seen(FLEET))
    assert {verdict.result for verdict in found.values()} == {"pass"}
    assert found["workers of node 1"].seen == "20 on 20-39"


@given(numbering=st.sampled_from(["linear", "adjacent", "even_odd"]), smt=st.sampled_from([1, 2]), data=st.data())
def test_whoever_leaves_the_plan_is_named(numbering: Any, smt: int, data: st.DataObject) -> None:
    of = planned(numbering=numbering, threads=smt)
    record = seen(of)
    assert not bad(of, record)
    moved = data.draw(st.sampled_from(server(record)["threads"]))
    taken = sorted(cpu for cpus in of.workers.values() for cpu in cpus)
    to = data.draw(st.lists(st.sampled_from(taken), min_size=1, unique=True))
    if moved["allowed"] == ranges(to):
        return
    moved["allowed"] = ranges(to)
    found = bad(of, record)
    assert found
    assert any(moved["name"] in verdict.key or moved["name"] in verdict.seen for verdict in found.values())


def test_two_workers_on_one_core_are_named_both() -> None:
    record = seen(FLEET)
    sibling = next(pu for pu in FLEET.cores[FLEET.workers[0][3]] if pu != FLEET.workers[0][3])
    worker(record, "numa_0_t_7")["allowed"] = str(sibling)
    found = bad(FLEET, record)
    assert found["worker numa_0_t_7"].seen == f"CPU {sibling}, on the core of numa_0_t_3"


def test_a_worker_on_the_other_node_is_named() -> None:
    record = seen(FLEET)
    worker(record, "numa_0_t_7")["allowed"] = "25"
    found = bad(FLEET, record)
    assert found["worker numa_0_t_7"].seen == "CPU 25 of node 1"


def test_a_worker_too_few_and_a_pool_too_much_are_counted() -> None:
    record = seen(FLEET)
    threads = server(record)["threads"]
    threads.remove(worker(record, "numa_1_t_7"))
    threads.append({"tid": 999, "name": "numa_2_m_0", "allowed": "60", "last_cpu": 60})
    found = bad(FLEET, record)
    assert found["workers of node 1"].seen.startswith("19 on ")
    assert (found["workers of node 2"].seen, found["workers of node 2"].wanted[:2]) == ("1 on 60", "0,")


def test_many_faults_are_counted_beyond_a_dozen() -> None:
    record = seen(FLEET)
    for thread in server(record)["threads"]:
        thread["allowed"] = "0-79"
    workers = [key for key in bad(FLEET, record) if key.startswith("worker ")]
    assert len(workers) == SHOWN
    rest = bad(FLEET, record)["workers, the rest"].seen
    assert rest == "28 more, as worker numa_0_t_12: may run on 0-79, ran last on 12"


def test_a_shard_may_miss_a_fiftieth_and_no_more() -> None:
    record = seen(FLEET)
    nodes = server(record)["memory"]["nodes"]
    nodes[1] = round(FLEET.shard_bytes * 0.9801)
    assert not bad(FLEET, record)
    nodes[1], nodes[0] = round(FLEET.shard_bytes * 0.97), nodes[0] + FLEET.shard_bytes // 10
    server(record)["memory"]["swap"] = 3 * 1024**3
    (verdict,) = bad(FLEET, record).values()
    assert verdict.key == "experts of node 1"
    assert verdict.seen == "62.8 GiB (node 0 73.2 GiB, 3.0 GiB swapped out)"


@pytest.mark.parametrize(("policy", "memory", "result"), [
    ("thp", {"huge": 0}, "fail"), ("off", {"huge": 0}, "skipped"), ("hugetlb", {"hugetlb": 0}, "fail"),
    ("hugetlb", {"huge": 0, "hugetlb": 2 * FLEET.shard_bytes}, "pass"),
])  # fmt: skip
def test_huge_pages_are_judged_by_the_policy(policy: Any, memory: dict[str, int], result: str) -> None:
    record = seen(FLEET)
    server(record)["memory"].update(memory)
    assert results(replace(FLEET, policy=policy), record)["experts' huge pages"].result == result


@pytest.mark.parametrize(("change", "result", "words"), [
    ({"interrupts": [{"irq": 98, "allowed": "0-79", "effective": "3"}]}, "fail", "98 on 3"),
    ({"interrupts": [{"irq": 98, "allowed": "0-79"}]}, "fail", "98 on 0-79"),
    ({"interrupts": [{"irq": 98}]}, "inconclusive", "98 does not tell"),
    ({"interrupts": []}, "inconclusive", "has none"),
    ({"interrupts": [], "interrupts_why": "permission denied"}, "inconclusive", "permission denied"),
])  # fmt: skip
def test_the_cards_interrupts_stay_off_the_workers(change: dict[str, Any], result: str, words: str) -> None:
    verdict = results(FLEET, {**seen(FLEET), **change})["the card's interrupts"]
    assert verdict.result == result
    assert words in str(verdict)


def test_what_could_not_be_read_is_never_a_pass() -> None:
    record = seen(FLEET)
    server(record).update(memory=None, memory_why="numa_maps: permission denied")
    found = bad(FLEET, record)
    assert {key: verdict.result for key, verdict in found.items()} == dict.fromkeys(
        ("experts of node 0", "experts of node 1", "experts' huge pages"), "inconclusive"
    )
    empty = {"schema": 1, "why": "no server runs"}
    for verdicts in (judge(FLEET, None), judge(None, None), judge(FLEET, Record.model_validate(empty)), begun()):
        assert [verdict.result for verdict in verdicts] == ["inconclusive"]
