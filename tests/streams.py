"""Made streams of completion chunks, as servers send them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ktfleet.measure.stream import Limits, Reading, Stream

Read = tuple[float, bytes]


def event(data: Any, end: str = "\n\n") -> bytes:
    """One event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}{end}".encode()


def chunk(usage: int | None = None, finish: str | None = None, choices: Any = None, **delta: Any) -> bytes:
    """One chunk of a chat completion."""
    data: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}
    if choices is not None:
        data["choices"] = choices
    if usage is not None:
        data["usage"] = {"completion_tokens": usage, "prompt_tokens": 20, "total_tokens": usage + 20}
    return event(data)


ROLE = chunk(role="assistant", content="")
DONE = event("[DONE]")


def end(usage: int | None, finish: str = "length") -> bytes:
    """How a stream ends: the finish, the usage, the mark."""
    return chunk(finish=finish) + (chunk(usage, choices=[]) if usage is not None else b"") + DONE


def bursts(sizes: Iterable[int], rate: float, first: float = 0.5, continuous: bool = True) -> list[Read]:
    """Tokens in bursts of the given sizes, each when its last token is ready at `rate` tokens a second."""
    reads: list[Read] = [(first / 2, ROLE)]
    so_far = 0
    for size in sizes:
        so_far += size
        usage = so_far if continuous else None
        reads.append((first + (so_far - 1) / rate, chunk(usage, content="x " * size)))
    reads.append((reads[-1][0], end(so_far)))
    return reads


def read(reads: Iterable[Read], limits: Limits | None = None, **how: Any) -> Reading:
    """What a stream of these reads shows."""
    stream = Stream(limits, **how)
    for t, data in reads:
        stream.feed(t, data)
    stream.end()
    return stream.reading()
