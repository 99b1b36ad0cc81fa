"""The tries of the OpenAI interface: the official client beside a server of the tests, judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ktfleet.judge.api import Wanted, begun, judge
from ktfleet.measure.api import Order, measure
from ktfleet.measure.api_record import Record
from ktfleet.verdict import Verdict
from tests.engine import engine

WANTED = Wanted("tiny", tools=True, reasoning=True)
ANSWERS = ("chat", "chat, stream", "completion", "completion, stream")
FEATURES = ("models", *ANSWERS, "tool", "tool, stream", "tool, result", "reasoning", "reasoning, stream")


def tried(**how: Any) -> Record:
    with engine(rate=2000.0, **how) as url:
        return Record.model_validate(measure(Order(url, tokens=16, ready_s=5.0)))


def results(record: Record | None, wanted: Wanted = WANTED) -> dict[str, Verdict]:
    return {verdict.key.removeprefix("api "): verdict for verdict in judge(wanted, record)}


@pytest.fixture(scope="module")
def good() -> Record:
    return tried()


def test_a_server_with_parsers_passes_every_feature(good: Record) -> None:
    found = results(good)
    assert {key: str(verdict) for key, verdict in found.items() if verdict.result != "pass"} == {}
    assert tuple(found) == FEATURES
    assert "get_weather" in found["tool, stream"].seen


def test_without_parsers_calls_and_reasoning_are_seen_in_the_text() -> None:
    found = results(tried(parsed=False))
    assert {key for key, verdict in found.items() if not verdict.good} == {
        "tool", "tool, stream", "reasoning", "reasoning, stream",
    }  # fmt: skip
    assert "<tool_call>" in found["tool"].seen
    assert "<think>" in found["reasoning"].seen


def test_what_the_recipe_does_not_promise_is_skipped(good: Record) -> None:
    found = results(good, replace(WANTED, tools=False, reasoning=False))
    assert [key for key, verdict in found.items() if verdict.result == "skipped"] == list(FEATURES[5:])
    assert results(good, replace(WANTED, model="other"))["models"].result == "fail"


def changed(record: Record, name: str, **fields: Any) -> Record:
    data = record.model_dump(by_alias=True)
    data["tries"][name].update(fields)
    return Record.model_validate(data)


@pytest.mark.parametrize(("name", "fields", "result"), [
    ("chat", {"error": "BadRequestError: 400"}, "fail"),
    ("chat", {"text": "  "}, "fail"),
    ("chat", {"completion_tokens": None}, "fail"),
    ("chat", {"finish": None}, "fail"),
    ("chat", {"text": "</think> a harbour"}, "fail"),
    ("tool", {"calls": ()}, "fail"),
    ("tool", {"finish": "stop"}, "fail"),
    ("tool_stream", {"calls": ({"name": "get_weather", "arguments": '{"city": "Par'},)}, "fail"),
    ("tool_stream", {"calls": ({"name": "get_weather", "arguments": '["Paris"]'},)}, "fail"),
    ("reasoning", {"reasoning": ""}, "fail"),
    ("reasoning", {"text": ""}, "fail"),
    ("reasoning", {"text": "", "finish": "length"}, "inconclusive"),
])  # fmt: skip
def test_each_fault_has_its_verdict(good: Record, name: str, fields: dict[str, Any], result: str) -> None:
    assert results(changed(good, name, **fields))[name.replace("_", ", ")].result == result


def test_what_was_not_tried_is_no_pass(good: Record) -> None:
    found = results(good.model_copy(update={"tries": {}}))
    assert {verdict.result for verdict in found.values()} == {"fail"}
    assert [verdict.result for verdict in begun()] == ["inconclusive"]
    assert [verdict.result for verdict in judge(WANTED, None)] == ["inconclusive"]


def test_without_a_server_or_its_key_there_is_a_reason(tmp_path: Path) -> None:
    record = Record.model_validate(measure(Order("http://127.0.0.1:9", ready_s=0.1)))
    assert record.why.startswith("the server is not ready: ")
    assert results(record)["api"].result == "inconclusive"
    without = measure(Order("http://127.0.0.1:9", key_file=str(tmp_path / "none")))
    assert "no such file" in without["why"]
