"""The protocol against an engine that is set to what it has to show."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet.judge.canary import judge as judge_canary
from ktfleet.judge.decode import judge, measured
from ktfleet.judge.decode.statistics import Rate
from ktfleet.judge.decode.wanted import Setup, Wanted
from ktfleet.measure import canary, decode
from ktfleet.measure.canary_record import Record as CanaryRecord
from ktfleet.measure.decode_record import Record
from ktfleet.verdict import Verdict
from tests.engine import engine

WANTED = Wanted(Setup("none", 1, "here"), spread=9.0)  # a machine that tests run on is no quiet one


def ran(url: str, **order: Any) -> Record:
    short = {"tokens": 100, "ladder": (), "streams": (), "ready_s": 5.0, **order}
    return Record.model_validate(decode.measure(decode.Order(url, **short)))


def verdicts(record: Record) -> dict[str, Verdict]:
    return {verdict.key: verdict for verdict in judge(WANTED, record)}


def test_an_engine_set_to_100_tokens_a_second_in_bursts_measures_so() -> None:
    with engine(rate=100.0) as url:
        record = ran(url)
    assert record.model == "tiny"
    assert {(run.approximate, run.tokens, run.foreign) for run in record.runs} == {(False, 100, 0)}
    for prompt in ("prose", "code"):
        rate = measured(prompt, WANTED, record)
        assert isinstance(rate, Rate)
        assert rate.median == pytest.approx(100.0, rel=0.02)


def test_a_hang_in_a_long_prompt_fails_in_bounded_time() -> None:
    with engine(rate=2000.0, hang_over=3000) as url:
        record = ran(url, probe=4000, probe_s=0.5)
        assert verdicts(record)["decode long prompt"].result == "fail"
    with engine(rate=2000.0, hang_over=3000) as url:
        record = ran(url, ladder=(1000, 4000), first_s=0.5, probe=4000)
    found = verdicts(record)
    assert (found["decode in context 1000"].result, found["decode in context 4000"].result) == ("pass", "fail")
    # What hangs once is not asked again.
    assert (found["decode long prompt"].result, record.streams) == ("inconclusive", ())


def test_foreign_requests_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "QUIET_S", 0.0)
    with engine(rate=500.0, foreign=1) as url:
        record = ran(url)
    assert record.in_flight_before == 1
    found = verdicts(record)["decode of prose"]
    assert (found.result, found.why.startswith("busy")) == ("inconclusive", True)


def test_several_streams_have_more_together() -> None:
    with engine(rate=280.0) as url:
        record = ran(url, streams=(2, 4))
    two, four = record.streams
    assert (two.foreign, four.foreign, len(four.runs)) == (0, 0, 4)
    assert two.together_tok_s
    assert four.together_tok_s
    assert four.together_tok_s > two.together_tok_s > 280.0


@pytest.mark.parametrize("says", ["the", "!!!!", "\ufffd\ufffd"])
def test_an_engine_that_writes_garbage_fails_the_canary_at_any_speed(says: str) -> None:
    with engine(rate=100_000.0, says=says) as url:
        order = canary.Order(url, tasks=("fib", "arithmetic"), tokens=200)
        record = CanaryRecord.model_validate(canary.measure(order))
    found = {verdict.key: verdict for verdict in judge_canary(record)}
    assert found["canary fib"].seen.startswith("garbage: ")
    assert found["canary fib"].result == found["canary arithmetic"].result == "fail"


def test_a_reference_server_is_asked_the_same() -> None:
    with engine(rate=100_000.0) as url, engine(rate=100_000.0, says="354") as reference:
        order = canary.Order(url, tasks=("arithmetic",), tokens=8, twice=False, reference=reference)
        record = CanaryRecord.model_validate(canary.measure(order))
    (verdict,) = judge_canary(record)
    assert (verdict.result, "the reference server answers it right" in verdict.why) == ("fail", True)
