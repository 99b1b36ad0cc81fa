"""Verdicts on the server's OpenAI interface: what the official client got, one verdict a feature."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ktfleet.measure.api import CITY, TOOL
from ktfleet.measure.api_record import Record, Try
from ktfleet.verdict import Verdict

KEY = "api"
TAGS = re.compile(r"</?think>|<\|?tool|tool_calls?[>|\u2581]|\uff5cDSML\uff5c", re.IGNORECASE)
"""Marks of reasoning and of calls, as models write them: in a text they show that nobody has parsed them."""

_WHY = {
    "chat": "every client of the server needs it",
    "completion": "editors and benchmarks use it",
    "tool": "an agent cannot work without it",
    "reasoning": "a client that shows the reasoning as the answer is useless, and one that gets none of either, too",
}
_DO = "compare the parsers in `ktfleet launch` with the model; see the server's journal"


@dataclass(frozen=True)
class Wanted:
    """model: the name that clients use. tools, reasoning: the server was started with a parser of them."""

    model: str
    tools: bool
    reasoning: bool


def judge(wanted: Wanted, record: Record | None) -> tuple[Verdict, ...]:
    """Every feature."""
    if record is None:
        return (_nothing("it could not be run: it needs the server's environment"),)
    if record.why:
        return (_nothing(record.why),)
    return tuple(_judged(wanted, record))


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    return (_nothing("the measurement was begun and has not ended"),)


def _judged(wanted: Wanted, record: Record) -> Iterator[Verdict]:
    missing = Try(error="it was not tried")
    tries = {
        name: record.tries.get(name, missing) for name in ("models", *_ANSWERS, *_CALLS, "tool_result", *_THOUGHTS)
    }
    models = tries["models"]
    good = models.error is None and wanted.model in models.models
    seen = models.error or ", ".join(models.models) or "none"
    yield Verdict(f"{KEY} models", "pass" if good else "fail", seen, wanted.model, "clients ask for it by name", _DO)
    for name in _ANSWERS:
        yield _answer(name, tries[name])
    for name in _CALLS:
        yield _call(name, tries[name]) if wanted.tools else _skipped(name, "tool calls")
    yield _answer("tool_result", tries["tool_result"]) if wanted.tools else _skipped("tool_result", "tool calls")
    for name in _THOUGHTS:
        yield _thought(name, tries[name]) if wanted.reasoning else _skipped(name, "the reasoning")


_ANSWERS = ("chat", "chat_stream", "completion", "completion_stream")
_CALLS = ("tool", "tool_stream")
_THOUGHTS = ("reasoning", "reasoning_stream")


def _answer(name: str, tried: Try) -> Verdict:
    wanted = "a text, its end, and the tokens counted"
    counted = bool(tried.prompt_tokens) and bool(tried.completion_tokens)
    marks = TAGS.search(tried.text)
    good = tried.error is None and tried.text.strip() and tried.finish in ("stop", "length") and counted and not marks
    return _verdict(name, bool(good), tried, wanted)


def _call(name: str, tried: Try) -> Verdict:
    function = TOOL["function"]["name"]
    wanted = f'one call of {function} with {{"city": "{CITY}"}}, finished by "tool_calls"'
    calls = [call for call in tried.calls if call.name == function and CITY in _city(call.arguments)]
    good = tried.error is None and len(tried.calls) == len(calls) == 1 and tried.finish == "tool_calls"
    return _verdict(name, good, tried, wanted)


def _city(arguments: str) -> str:
    """Empty when the arguments are no JSON object with one."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    city = found.get("city") if isinstance(found, dict) else None
    return city if isinstance(city, str) else ""


def _thought(name: str, tried: Try) -> Verdict:
    wanted = "the reasoning apart from the answer, and both of them"
    if tried.error is None and tried.finish == "length" and tried.reasoning and not tried.text.strip():
        why = "the reasoning took all of the tokens, so that no answer came"
        return Verdict(_key(name), "inconclusive", _seen(tried), wanted, why)
    apart = tried.reasoning.strip() and tried.text.strip() and not TAGS.search(tried.text + tried.reasoning)
    return _verdict(name, tried.error is None and bool(apart), tried, wanted)


def _verdict(name: str, good: bool, tried: Try, wanted: str) -> Verdict:
    why = _WHY[name.partition("_")[0]]
    return Verdict(_key(name), "pass" if good else "fail", _seen(tried), wanted, why, _DO)


def _seen(tried: Try) -> str:
    if tried.error is not None:
        return tried.error
    parts = [
        f"text {_short(tried.text)}" if tried.text.strip() else "no text",
        *([f"reasoning {_short(tried.reasoning)}"] if tried.reasoning else []),
        *(f"call {call.name}({call.arguments})" for call in tried.calls),
        f"finish {tried.finish}",
        f"tokens {tried.prompt_tokens}+{tried.completion_tokens}",
    ]
    return ", ".join(parts)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _skipped(name: str, what: str) -> Verdict:
    return Verdict(_key(name), "skipped", "nothing", "nothing", f"the recipe names no parser of {what}")


def _key(name: str) -> str:
    return f"{KEY} {name.replace('_', ', ')}"


def _nothing(why: str) -> Verdict:
    return Verdict(KEY, "inconclusive", "nothing", "answers of the running server", why)
