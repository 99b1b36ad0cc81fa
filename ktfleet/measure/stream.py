"""The decode rate of one recorded or running completion stream.

rate = (completion tokens after the first counted chunk) / (time from that chunk to the last). The time to the first
token and the prefill rate are apart. Tokens come from `usage`: from its deltas where the server sends one with every
chunk, else from the last one; then nobody knows how many tokens the first chunk held, and the rate is approximate,
with bounds. Times are seconds of a monotonic clock since the request was sent. Only the standard library: it runs on
the host.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from ktfleet.measure import chunks, rates
from ktfleet.measure.chunks import Chunk, Malformed, Usage
from ktfleet.measure.http_errors import Kind, explain, kind
from ktfleet.measure.rates import Moment
from ktfleet.measure.sse import Event, Splitter, TooLong

Outcome = Literal["ok", "cannot-measure", "error"]
HEAD = 1 << 16
"""Bytes of a body that are kept to explain one that is no stream."""


@dataclass(frozen=True)
class Limits:
    """Seconds: until the first chunk (the prefill of a long prompt), between two, and of the whole stream."""

    first_s: float = 600.0
    idle_s: float = 60.0
    total_s: float = 1800.0


@dataclass(frozen=True)
class Reading:
    """What one stream shows.

    verdict: "ok"; "cannot-measure": the stream is whole but has no rate; "error": it is not what was asked for.
    kind: the class of an error. Rates in tokens a second, with bounds when approximate. token_gap_ms: percentiles of
    the time between tokens, only where the server counts each chunk. longest_gap_s: between two chunks, always.
    prefill_tok_s: the uncached part of the prompt by the time to the first token (network and queue included).
    """

    verdict: Outcome
    reason: str = ""
    kind: Kind = ""
    status: int | None = None
    tokens: int | None = None
    ttft_s: float | None = None
    decode_tok_s: float | None = None
    approximate: bool = False
    low_tok_s: float | None = None
    high_tok_s: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefill_tok_s: float | None = None
    token_gap_ms: dict[str, float] | None = None
    longest_gap_s: float | None = None
    finish: str | None = None
    text: str = ""
    reasoning: str = ""
    tool_calls: int = 0

    @property
    def generated(self) -> bool:
        """Whether the model wrote anything: one token may have no text."""
        return bool(self.tokens or self.text or self.reasoning or self.tool_calls)

    def numbers(self) -> dict[str, Any]:
        """All but what the model wrote, in plain JSON types."""
        return {name: value for name, value in asdict(self).items() if name not in ("text", "reasoning")}


class Stream:
    """Takes a response as it comes and gives the reading at its end."""

    def __init__(self, limits: Limits | None = None, status: int | None = None, retry_after: str | None = None) -> None:
        self.limits = limits or Limits()
        self.over = False
        self._done = False
        self._status, self._retry_after = status, retry_after
        self._splitter = Splitter()
        self._head = b""
        self._events = 0
        self._wrong: tuple[Kind, str] | None = None
        self._backwards: str | None = None
        self._latest = self._progress = 0.0
        self._moments: list[Moment] = []
        self._started: float | None = None
        self._finished: tuple[float, str] | None = None
        self._usage: Usage | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls = 0

    def patience(self, now: float) -> float:
        """Seconds from `now` on that may pass without an event."""
        gap = self.limits.idle_s if self._moments else self.limits.first_s
        return min(self._progress + gap, self.limits.total_s) - now

    def feed(self, now: float, data: bytes) -> None:
        """Bytes that came at `now`."""
        if self.over:
            return
        if now < self._latest:
            self._backwards = f"the clock went from {self._latest:.3f} s back to {now:.3f} s"
        self._latest = max(now, self._latest)
        if self.patience(now) < 0:
            self.expire()
            return
        self._head = (self._head + data)[:HEAD] if len(self._head) < HEAD else self._head
        if self._status not in (None, 200):
            return
        try:
            for event in self._splitter.feed(data):
                self._event(now, event)
        except TooLong as error:
            self.fail("malformed", f"the stream is not one of events: seen {error}")

    def end(self) -> None:
        """The server closed the connection in good order."""
        if not self.over and self._status in (None, 200):
            for event in self._splitter.end():
                self._event(self._latest, event, whole=False)
        self.over = True

    def expire(self) -> None:
        """Too long nothing came, or it never ends."""
        if self._progress + (self.limits.idle_s if self._moments else self.limits.first_s) < self.limits.total_s:
            gap = self.limits.idle_s if self._moments else self.limits.first_s
            what = "after the last chunk" if self._moments else "before the first chunk"
            self.fail("hang", f"nothing came for {gap:g} s {what}")
        else:
            self.fail("hang", f"the stream had no end after {self.limits.total_s:g} s")

    def fail(self, kind: Kind, reason: str) -> None:
        """It went wrong; the first reason counts."""
        self._wrong = self._wrong or (kind, reason)
        self.over = True

    def _event(self, now: float, event: Event, whole: bool = True) -> None:
        if self.over:
            return
        self._events += 1
        self._progress = now
        if event.field == "error":
            self.fail("server", f"the server reports an error in the stream: {' '.join(event.text.split())[:300]}")
            return
        try:
            chunk = chunks.parse(event.text)
        except Malformed as error:
            if not whole:  # the connection ended within it: that is what counts
                return
            self.fail("malformed", f"event {self._events} of the stream is malformed: seen {error}")
            return
        if chunk.error is not None:
            self.fail(kind(chunk.code), f"the server reports an error in the stream: {chunk.error}")
        elif chunk.done:
            self._done = self.over = True
        else:
            self._chunk(now, chunk)

    def _chunk(self, now: float, chunk: Chunk) -> None:
        self._started = now if self._started is None else self._started
        self._text.append(chunk.text)
        self._reasoning.append(chunk.reasoning)
        self._tool_calls += chunk.tool_calls
        if chunk.finish and self._finished is None:
            self._finished = (now, chunk.finish)
        if chunk.usage:
            self._count(chunk.usage)
        if chunk.carries_tokens or chunk.usage or chunk.finish:
            # After the finish chunk nothing is generated: a late usage belongs to its time.
            at = min(now, self._finished[0]) if self._finished else now
            counted = chunk.usage.completion if chunk.usage else None
            self._moments.append(Moment(at, chunk.carries_tokens, bool(chunk.reasoning or chunk.tool_calls), counted))

    def _count(self, usage: Usage) -> None:
        before = self._usage.completion if self._usage else 0
        if usage.completion < before:
            self._backwards = f"the usage went from {before} back to {usage.completion} tokens"
        self._usage = usage

    def reading(self) -> Reading:
        """What it was, at its end."""
        wrong = self._refusal() or self._wrong or self._unfinished()
        seen = self._seen()
        if wrong:
            return Reading("error", wrong[1], wrong[0], self._status, **seen)
        rate = rates.rate(self._moments, self._usage.completion if self._usage else None, self._started)
        why = self._backwards or rate.why
        if why:
            return Reading("cannot-measure", why, status=self._status, **seen)
        return Reading("ok", status=self._status, **{**seen, **rate.fields})

    def _refusal(self) -> tuple[Kind, str] | None:
        """An answer that is no stream: an HTTP error, or a body that is none."""
        if self._status in (None, 200) and (self._events or self._wrong):
            return None
        return explain(None if self._status == 200 else self._status, self._head, self._retry_after)

    def _unfinished(self) -> tuple[Kind, str] | None:
        if self._finished or self._done:
            return None
        return "cut", f"the stream ended after {self._events} events, before it was finished"

    def _seen(self) -> dict[str, Any]:
        """What is known of any stream."""
        usage = self._usage
        first = rates.first(self._moments, usage.completion if usage else None, self._started)
        prompt, cached = (usage.prompt, usage.cached) if usage else (None, None)
        prefill = (prompt - (cached or 0)) / first if prompt is not None and first else None
        times = [moment.t for moment in self._moments]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        return {
            "tokens": usage.completion if usage else None,
            "ttft_s": first,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "prefill_tok_s": prefill,
            "longest_gap_s": max(gaps, default=None),
            "finish": self._finished[1] if self._finished else None,
            "text": "".join(self._text),
            "reasoning": "".join(self._reasoning),
            "tool_calls": self._tool_calls,
        }
