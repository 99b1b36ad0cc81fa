"""The judge of the decode rate: every way to be sure, unsure and slow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.judge.decode import begun, judge, slowest
from ktfleet.judge.decode.causes import likely
from ktfleet.judge.decode.statistics import summarise
from ktfleet.judge.decode.wanted import Published, Setup, Wanted, ceiling
from ktfleet.measure.decode_record import Record
from ktfleet.verdict import Verdict

TOP4 = Setup("AMXINT4", 4, "2x Xeon Gold 6138")
TOP6 = Setup("AMXINT4", 6, "2x Xeon Gold 6138")
FIGURE = Published(28.0, TOP4, "a public report", "2026-07-22")
WANTED = Wanted(TOP4, (FIGURE,), ceiling_tok_s=46.0)
RATES = (28.0, 28.1, 27.9, 28.2, 28.0)


def run(prompt: str = "prose", rate: float | None = 28.0, **more: Any) -> dict[str, Any]:
    plain = {"prompt": prompt, "verdict": "ok", "tokens": 256, "decode_tok_s": rate, "low_tok_s": rate,
             "high_tok_s": rate, "prompt_tokens": 40, "ttft_s": 0.5, "foreign": 0}  # fmt: skip
    return {**plain, **more}


def record(prose: Any = RATES, code: Any = RATES, **more: Any) -> Record:
    runs = [run("prose", rate) for rate in prose] + [run("code", rate) for rate in code]
    data = {"schema": 1, "ready": {"ready": True, "waited_s": 0.1}, "runs": runs, "order": {"probe": 0}}
    return Record.model_validate({**data, **more})


def results(wanted: Wanted, measured: Record | None, others: Any = None) -> dict[str, Verdict]:
    return {verdict.key: verdict for verdict in judge(wanted, measured, others)}


def test_a_host_as_published_passes_with_its_numbers() -> None:
    found = results(WANTED, record())
    assert {key: verdict.result for key, verdict in found.items()} == {
        "decode of prose": "pass", "decode of code": "pass", "decode rate": "pass", "decode ceiling": "pass",
        "decode history": "skipped",
    }  # fmt: skip
    assert found["decode rate"].seen == "28.0 tok/s (27.9-28.2, 5 runs, spread 1.1%)"
    assert found["decode rate"].wanted == ">= 26.6 tok/s"
    assert found["decode ceiling"].seen == "61% of it"


def test_a_slow_host_fails_and_another_check_tells_why() -> None:
    slow = record(prose=[22.4, 22.5, 22.4, 22.3, 22.4])
    assert results(WANTED, slow)["decode rate"].result == "fail"
    lost = Verdict("bandwidth of node 1", "fail", "61 GB/s", ">= 90 GB/s", "its twins have 93", "reseat channel D")
    thp = Verdict("/sys/kernel/mm/transparent_hugepage/enabled", "fail", "never", "always", "small pages")
    told = results(WANTED, slow, {"drift": (thp,), "bandwidth": (lost,)})["decode rate"]
    assert str(told) == (
        "decode rate: seen 22.4 tok/s (22.3-22.5, 5 runs, spread 0.9%), wanted >= 26.6 tok/s; reseat channel D. Why: "
        "memory is slower than it should be: bandwidth of node 1: seen 61 GB/s, wanted >= 90 GB/s "
        "(published 28 (a public report, 2026-07-22))"
    )
    assert "small pages" in results(WANTED, slow, {"drift": (thp,)})["decode rate"].why


@pytest.mark.parametrize(("check", "key", "words"), [
    ("placement", "numa_0_t_1", "workers are not where"), ("gpu", "gpu clock reasons", "card is slowed down"),
    ("drift", "/sys/x/scaling_governor", "full clock"), ("drift", "kernel.numa_balancing", "moves the weights"),
    ("drift", "vm.swappiness", "a setting is not"), ("gpu", "gpu Xids", "card is not as wanted"),
])  # fmt: skip
def test_each_kind_of_cause_has_its_words(check: str, key: str, words: str) -> None:
    cause = likely({check: (Verdict(key, "fail", "a", "b", "c"),)})
    assert cause
    assert words in cause[0]
    assert likely({check: (Verdict(key, "inconclusive", "a", "b", "c"),)}) is None


def test_a_figure_of_another_setup_is_never_applied() -> None:
    found = results(Wanted(TOP6, (FIGURE,)), record(prose=[19.0] * 5, code=[19.1] * 5))
    assert found["decode rate"].result == "skipped"
    assert "no figure is published for AMXINT4, top-6" in found["decode rate"].why
    assert found["decode ceiling"].result == "skipped"


def test_a_limit_within_the_interval_decides_nothing() -> None:
    found = results(WANTED, record(prose=[26.2, 26.4, 26.6, 26.8, 27.0]))
    assert found["decode rate"].result == "inconclusive"


@pytest.mark.parametrize(("change", "words"), [
    ({"prose": [28, 28, 28, 28, 31]}, "the runs differ too much"),
    ({"prose": [28, 28, 28, 28]}, "ended early"),
    ({"prose": []}, "nothing ran"),
    ({"runs": [run(foreign=1)] * 5}, "busy"),
    ({"runs": [run(foreign=None)] * 5}, "does not tell how many requests"),
    ({"runs": [run(tokens=12)] * 5}, "ended early"),
    ({"runs": [run()] * 4 + [run(rate=None, verdict="cannot-measure", reason="no usage")]}, "no usage"),
    ({"runs": [run(approximate=True, low_tok_s=20.0)] * 5}, "only at the end"),
])  # fmt: skip
def test_what_is_not_sure_is_inconclusive_and_so_is_the_rate(change: dict[str, Any], words: str) -> None:
    found = results(WANTED, record(**change))
    assert found["decode of prose"].result == "inconclusive"
    assert words in found["decode of prose"].why
    assert found["decode rate"].result == "inconclusive"
    assert slowest(WANTED, record(**change)) is None


def test_faster_than_memory_is_no_triumph() -> None:
    found = results(WANTED, record(prose=[60.0] * 5, code=[60.0] * 5))
    assert found["decode ceiling"].result == "inconclusive"
    assert "measured wrongly" in found["decode ceiling"].why


def test_a_host_is_compared_with_its_own_past() -> None:
    past = Wanted(TOP6, history=(19.0, 19.2, 19.1))
    assert results(past, record(prose=[19.0] * 5))["decode history"].result == "pass"
    assert results(past, record(prose=[16.0] * 5))["decode history"].result == "fail"
    assert slowest(past, record(prose=[19.0] * 5)) == 19.0


def test_the_ceiling_is_the_slowest_nodes() -> None:
    assert ceiling([50.0, 50.0], 2_173_000_000) == pytest.approx(46.0, abs=0.1)
    assert ceiling([61.0, 93.0], 2_000_000_000) == 61.0


def test_no_server_no_record() -> None:
    loading = record(ready={"ready": False, "waited_s": 600, "why": "/health says 503"})
    assert [(v.key, v.result, v.why) for v in judge(WANTED, loading)] == [
        ("decode server", "inconclusive", "/health says 503")
    ]
    assert [v.result for v in (*judge(WANTED, None), *begun())] == ["inconclusive", "inconclusive"]


def test_a_long_prompt_that_hangs_fails() -> None:
    order = {"probe": 20_000, "probe_s": 300.0}
    hang = run("probe", None, verdict="error", kind="hang", reason="nothing came for 300 s before the first chunk")
    assert results(WANTED, record(order=order, probe=hang))["decode long prompt"].result == "fail"
    assert results(WANTED, record(order=order, probe=run("probe")))["decode long prompt"].result == "pass"
    refused = run("probe", None, verdict="error", kind="refused", reason="too long")
    assert results(WANTED, record(order=order, probe=refused))["decode long prompt"].result == "inconclusive"
    assert results(WANTED, record(order=order, stopped="runs: cut"))["decode long prompt"].result == "inconclusive"


def test_longer_contexts_and_more_streams_are_reported() -> None:
    rung = run("context 8192", 25.0, prompt_tokens=8100, prefill_tok_s=150.0, ttft_s=54.0)
    streams = {"count": 2, "verdict": "ok", "together_tok_s": 40.0, "foreign": 0}
    found = results(WANTED, record(ladder=[rung], streams=[streams]))
    assert found["decode in context 8192"].seen == (
        "25.0 tok/s after 8100 tokens, prefill 150 tok/s, first token 54.0 s"
    )
    assert found["decode of 2 streams"].seen == "40.0 tok/s together"
    dead = run("context 8192", None, verdict="error", kind="hang", reason="nothing came")
    failed = {"count": 2, "verdict": "error", "reason": "cut"}
    busy = {**streams, "count": 4, "foreign": 2}
    found = results(WANTED, record(ladder=[dead], streams=[failed, busy]))
    assert [found[key].result for key in ("decode in context 8192", "decode of 2 streams", "decode of 4 streams")] == [
        "fail", "inconclusive", "inconclusive",
    ]  # fmt: skip


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=12))
def test_the_interval_holds_the_median_and_is_the_same_again(rates: list[float]) -> None:
    rate = summarise(rates)
    assert min(rates) <= rate.low <= rate.median <= rate.high <= max(rates)
    assert rate == summarise(rates)
