"""The judge of memory bandwidth."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet.host.state import Dimm
from ktfleet.judge.bandwidth import begun, figures, judge
from ktfleet.measure.bandwidth_record import Record
from ktfleet.plan.worksheet import theory_gb_s
from ktfleet.verdict import Verdict
from tests.states import workstation

THEORY = {0: 115.2, 1: 115.2}  # 6 channels of DDR4-2400 a socket


def run(kind: str, cpu: int | None, memory: int | None, best: float, threads: int = 20, **more: Any) -> dict[str, Any]:
    kernel = {"best": best, "median": best * 0.97, "reps": 9}
    plain = {"kind": kind, "cpu_node": cpu, "memory_node": memory, "threads": threads, "read": kernel,
             "triad": kernel, "huge_bytes": 100, "bytes": 100}  # fmt: skip
    return {**plain, **more}


def record(*changed: dict[str, Any], node_1: float = 98.0, **more: Any) -> Record:
    runs = [
        run("matrix", 0, 0, 98.0), run("matrix", 0, 1, 34.0), run("matrix", 1, 0, 34.0), run("matrix", 1, 1, node_1),
        run("sweep", 0, 0, 13.0, 1), run("sweep", 0, 0, 88.0, 8), run("sweep", 0, 0, 96.0, 15),
        run("together", None, None, 98.0 + node_1, 40), *changed,
    ]  # fmt: skip
    return Record.model_validate({"schema": 1, "order": {"hugepages": "thp"}, "runs": runs, **more})


def results(measured: Record | None, theory: dict[int, float] = THEORY) -> dict[str, Verdict]:
    return {verdict.key: verdict for verdict in judge(theory, measured)}


def test_a_whole_host_passes() -> None:
    found = results(record())
    assert {verdict.result for verdict in found.values()} == {"pass"}
    assert found["bandwidth of node 0"].seen == ("98.0 GB/s with 20 threads (median 95.1, triad 98.0), 85% of theory")
    assert found["bandwidth threads of node 0"].seen.startswith("15 have 95 % of the most (1: 13.0, 8: 88.0")
    assert figures(record()) == {"read GB/s of node 0": 98.0, "read GB/s of node 1": 98.0}


def test_a_lost_channel_shows_against_theory_and_against_the_twin() -> None:
    found = results(record(node_1=61.0))
    assert (found["bandwidth of node 1"].result, found["bandwidth of the nodes"].result) == ("fail", "fail")
    assert "reseat the DIMMs" in str(found["bandwidth of node 1"])
    # Where the firmware does not list the DIMM, theory is lower too: the twin tells.
    unlisted = results(record(node_1=80.0), {0: 115.2, 1: 96.0})
    assert (unlisted["bandwidth of node 1"].result, unlisted["bandwidth of the nodes"].result) == ("pass", "fail")


@pytest.mark.parametrize(("measured", "theory", "key", "result", "words"), [
    (record(), {}, "bandwidth of node 0", "inconclusive", "nothing to compare with"),
    (record(), {0: 90.0, 1: 90.0}, "bandwidth of node 0", "inconclusive", "faster than its channels"),
    (record(run("matrix", 0, 0, 98.0, read={"best": 98.0, "median": 60.0, "reps": 9})), THEORY,
     "bandwidth of node 0", "inconclusive", "something else uses the memory"),
    (record(run("together", None, None, 110.0, 40)), THEORY, "bandwidth together", "fail", "interleaving"),
    (record(run("matrix", 0, 0, 98.0, huge_bytes=3)), THEORY, "bandwidth huge pages", "fail", "3%"),
    (record(order={"hugepages": "off"}), THEORY, "bandwidth huge pages", "skipped", "no huge pages"),
    (record(why="server running"), THEORY, "bandwidth", "inconclusive", "server running"),
    (record(runs=[]), THEORY, "bandwidth", "inconclusive", "nothing ran"),
    (record(run("matrix", 0, 0, 98.0, wrong=True)), THEORY, "bandwidth", "fail", "test the memory"),
    (record({"kind": "sweep", "error": "mmap: no"}), THEORY, "bandwidth", "inconclusive", "mmap: no"),
    (None, THEORY, "bandwidth", "inconclusive", "could not be run"),
])  # fmt: skip
def test_each_case(measured: Record | None, theory: dict[int, float], key: str, result: str, words: str) -> None:
    verdict = results(measured, theory)[key]
    assert (verdict.result, words in str(verdict)) == (result, True), str(verdict)


def test_nothing_is_kept_of_what_went_wrong() -> None:
    assert figures(record(run("sweep", 0, 0, 1.0, wrong=True))) == {}
    assert figures(record(why="server running")) == {}
    assert [verdict.result for verdict in begun()] == ["inconclusive"]


def dimm(socket: int | None, channel: str | None, mts: int | None = 2400, size: int = 1 << 34) -> Dimm:
    return Dimm(label="x", socket=socket, channel=channel, size=size, configured_mts=mts)


def test_theory_is_channels_times_speed_times_eight_bytes() -> None:
    dimms = tuple(dimm(socket, str(channel)) for socket in (0, 1) for channel in range(4))
    host = workstation()
    assert theory_gb_s(host.model_copy(update={"dimms": dimms})) == {0: 76.8, 1: 76.8}
    two_in_one = (*dimms, dimm(0, "0"), dimm(0, "5", size=0))
    assert theory_gb_s(host.model_copy(update={"dimms": two_in_one})) == {0: 76.8, 1: 76.8}
    for unknown in (dimm(None, None), dimm(0, None), dimm(0, "4", None)):
        assert theory_gb_s(host.model_copy(update={"dimms": (*dimms, unknown)})) == {}
    assert theory_gb_s(host.model_copy(update={"dimms": None})) == {}
