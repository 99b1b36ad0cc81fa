"""The judge of the expert kernel."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet.judge.experts import Wanted, begun, ceiling, judge
from ktfleet.measure.experts_record import Record
from ktfleet.verdict import Verdict

MEASURED: dict[str, Any] = {
    "schema": 1, "variant": "avx512_base", "kernel": "AMXInt4_MOE", "distance": 0.0004, "finite": True,
    "workers": {"numa_0_m_0": [0], "numa_1_m_0": [20]}, "rounds_us": [700.0, 710.0, 690.0, 705.0] * 3, "gb_s": 72.2,
}  # fmt: skip
"""1e6 / (43 x 702.5 us) = 33.1 tok/s."""
PUBLISHED = Wanted(43, 28.0)


def results(wanted: Wanted = PUBLISHED, **changed: Any) -> dict[str, Verdict]:
    record = Record.model_validate({**MEASURED, **changed})
    return {verdict.key.removeprefix("expert kernel "): verdict for verdict in judge(wanted, record)}


def test_a_kernel_that_allows_the_published_rate_passes() -> None:
    found = results()
    assert {verdict.result for verdict in found.values()} == {"pass"}
    assert found["time"].seen.startswith("702 us a layer, 72.2 GB/s, 30.2 ms of a token: at most 33.1 tok/s (")
    assert ceiling(43, Record.model_validate(MEASURED)) == pytest.approx(33.1, abs=0.05)


@pytest.mark.parametrize(("changed", "key", "result", "words"), [
    ({"distance": 0.3}, "result", "fail", "0.3"),
    ({"finite": False}, "result", "fail", "no numbers"),
    ({"distance": None, "distance_why": "no numpy"}, "result", "inconclusive", "no numpy"),
    ({"workers": {"numa_0_m_0": [0, 1]}}, "workers", "inconclusive", "numa_0_m_0"),
    ({"workers": {}}, "workers", "inconclusive", "no worker"),
    ({"rounds_us": [900.0] * 8}, "time", "fail", "25.8 tok/s"),
    ({"rounds_us": [700.0, 1100.0, 1500.0, 2000.0]}, "time", "inconclusive", "something else"),
])  # fmt: skip
def test_each_fault_has_its_verdict(changed: dict[str, Any], key: str, result: str, words: str) -> None:
    verdict = results(**changed)[key]
    assert verdict.result == result
    assert words in str(verdict)


def test_without_a_published_rate_the_time_is_reported() -> None:
    assert results(Wanted(43), rounds_us=[2000.0] * 8)["time"].result == "pass"


def test_nothing_measured_is_no_pass() -> None:
    stopped = Record.model_validate({"schema": 1, "why": "server running"})
    for verdicts in (judge(PUBLISHED, None), judge(PUBLISHED, stopped), begun()):
        assert [verdict.result for verdict in verdicts] == ["inconclusive"]
    assert judge(PUBLISHED, stopped)[0].why == "server running"
