"""What one event of a completion stream is. Chunks are never tokens: only `usage` counts.

Only the standard library: it runs on the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"


class Malformed(ValueError):
    """An event that is no chunk of a completion; the text says what was seen."""


@dataclass(frozen=True)
class Usage:
    """What the server counted so far. `cached` are prompt tokens that it did not have to compute."""

    completion: int
    prompt: int | None = None
    cached: int | None = None


@dataclass(frozen=True)
class Chunk:
    """One event. `error`: the server's own words when it is an error object. `done`: the mark after the last chunk.

    A chunk without text, reasoning, tool_calls, finish and usage (role only, empty, null) says nothing.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: int = 0
    finish: str | None = None
    usage: Usage | None = None
    error: str | None = None
    code: int | None = None
    done: bool = False

    @property
    def carries_tokens(self) -> bool:
        """Whether something that the model wrote is in it; not how many tokens."""
        return bool(self.text or self.reasoning or self.tool_calls)


def parse(text: str) -> Chunk:
    """The chunk of one event. Raises Malformed."""
    if text.strip() == DONE:
        return Chunk(done=True)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed(f"no JSON: {text[:60]!a}") from None
    if not isinstance(data, dict):
        raise Malformed(f"no JSON object: {text[:60]!a}")
    if data.get("error"):
        return Chunk(error=words(data), code=code(data))
    choices = data.get("choices")
    if choices is not None and not (isinstance(choices, list) and all(isinstance(one, dict) for one in choices)):
        raise Malformed(f"choices that are no list of objects: {str(choices)[:60]!a}")
    return Chunk(**_said(choices or []), usage=_usage(data.get("usage")))


def words(data: dict[str, Any]) -> str:
    """An error object's message."""
    error = data.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    text = message if isinstance(message, str) else json.dumps(error)
    return " ".join(text.split())[:300]


def code(data: dict[str, Any]) -> int | None:
    """An error object's HTTP status, where it has one."""
    error = data.get("error")
    found = error.get("code") if isinstance(error, dict) else None
    return found if type(found) is int else None


def _said(choices: list[dict[str, Any]]) -> dict[str, Any]:
    text, reasoning, tools, finish = "", "", 0, None
    for choice in choices:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        text += "".join(_strings(delta.get("content"), choice.get("text")))
        # reasoning_content: sglang, llama.cpp, transformers; reasoning: vLLM.
        reasoning += next(_strings(delta.get("reasoning_content"), delta.get("reasoning")), "")
        tools += len(calls) if isinstance(calls := delta.get("tool_calls"), list) else 0
        finish = next(_strings(choice.get("finish_reason")), finish)
    return {"text": text, "reasoning": reasoning, "tool_calls": tools, "finish": finish}


def _strings(*values: Any) -> Iterator[str]:
    return (value for value in values if isinstance(value, str) and value)


def _usage(data: Any) -> Usage | None:
    if data is None:
        return None
    counted = data.get("completion_tokens") if isinstance(data, dict) else None
    if type(counted) is not int or counted < 0:
        raise Malformed(f"usage without a count: {str(data)[:60]!a}")
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(counted, _count(data.get("prompt_tokens")), _count(cached))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
