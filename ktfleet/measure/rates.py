"""From moments and token counts to a rate. Pure. Only the standard library: it runs on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

FEWEST = 3
"""Tokens that a rate needs: two after the first counted chunk. With one, there is one gap and no rate."""


@dataclass(frozen=True)
class Moment:
    """One chunk that says something: when it came, whether the model's words are in it, tokens so far.

    `parsed`: a parser made it (reasoning, a tool call).
    """

    t: float
    carries_tokens: bool
    parsed: bool = False
    counted: int | None = None


@dataclass(frozen=True)
class Rate:
    """A rate as fields of a Reading, or why there is none."""

    why: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


def first(moments: Sequence[Moment], total: int | None, started: float | None) -> float | None:
    """When the first token came; `total` and `started` as for `rate`."""
    if len(_steps(moments)) > 1:
        return next(moment.t for moment in moments if moment.carries_tokens or moment.counted)
    carrying = [moment for moment in moments if moment.carries_tokens]
    return _begin(carrying, total or 0, started, moments[-1].t) if carrying else None


def rate(moments: Sequence[Moment], total: int | None, started: float | None) -> Rate:
    """The decode rate; `total` is the last usage's count, `started` when the first chunk of any kind came."""
    if total is None:
        return Rate("the server sends no usage, and chunks are no tokens: ask with stream_options.include_usage")
    if total < FEWEST:
        return Rate(f"{total} tokens in all are too few for a rate: wanted {FEWEST} or more")
    steps = _steps(moments)
    if len(steps) > 1:
        return _counted(steps)
    return _approximate(moments, total, started)


def _steps(moments: Sequence[Moment]) -> list[tuple[float, int]]:
    """(time, tokens so far) wherever the count grew."""
    steps: list[tuple[float, int]] = []
    for moment in moments:
        if moment.counted and (not steps or moment.counted > steps[-1][1]):
            steps.append((moment.t, moment.counted))
    return steps


def _counted(steps: list[tuple[float, int]]) -> Rate:
    (begin, before), (end, after) = steps[0], steps[-1]
    if after - before < FEWEST - 1:
        return Rate(f"{after - before} tokens after the first counted chunk are too few for a rate")
    if end <= begin:
        return Rate(f"all {after} tokens came at once")
    found = (after - before) / (end - begin)
    gaps = [((later - earlier) / (more - fewer), more - fewer) for (earlier, fewer), (later, more) in pairwise(steps)]
    return Rate(fields={"decode_tok_s": found, "low_tok_s": found, "high_tok_s": found, "token_gap_ms": _gaps(gaps)})


def _gaps(gaps: list[tuple[float, int]]) -> dict[str, float]:
    """Percentiles over tokens: a chunk of n tokens counts n times, each with an n-th of its time."""
    ordered = sorted(gaps)
    everything = sum(weight for _, weight in ordered)
    found = {}
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)):
        passed = accumulate(weight for _, weight in ordered)
        reached = next(index for index, so_far in enumerate(passed) if so_far * 100 >= everything * percent)
        found[name] = ordered[reached][0] * 1000
    return found


def _approximate(moments: Sequence[Moment], total: int, started: float | None) -> Rate:
    """From the last usage alone. The first counted chunk holds one token or more, each later one at least one."""
    carrying = [moment for moment in moments if moment.carries_tokens]
    if not carrying:
        return Rate(f"no chunk holds any of the {total} tokens")
    end = moments[-1].t
    begin = _begin(carrying, total, started, end)
    if end <= carrying[0].t:
        return Rate(f"all {total} tokens came at once")
    found = (total - 1) / (end - begin)
    high = (total - 1) / (end - carrying[0].t)
    low = min(found, (len(carrying) - 1) / (end - carrying[0].t))
    return Rate(fields={"decode_tok_s": found, "approximate": True, "low_tok_s": low, "high_tok_s": high})


def _begin(carrying: Sequence[Moment], total: int, started: float | None, end: float) -> float:
    """When the first token was there: with the first chunk that holds one, or with the role chunk before it.

    A parser keeps back a <think> or what comes before a tool call, so its first words can come late. sglang, llama.cpp
    and vLLM send the role with the first token, transformers before the prefill. It was the former when the tokens that
    fit in between, at the rate that follows from it, are no more than the tokens that no chunk shows.
    """
    shown = carrying[0].t
    if not carrying[0].parsed or started is None or end <= started:
        return shown
    between = (total - 1) * (shown - started) / (end - started)
    return started if between <= total - len(carrying) else shown
