"""Verdicts on where the server's threads and memory are: a measurement and what was planned in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.judge.placement import interrupts, memory, threads
from ktfleet.judge.placement.wanted import Wanted, wanted
from ktfleet.measure.placement_record import Record
from ktfleet.verdict import Verdict

__all__ = ["Wanted", "begun", "judge", "wanted"]

KEY = "placement"


def judge(plan: Wanted | None, record: Record | None) -> tuple[Verdict, ...]:
    """Everything that was read. No plan: the host's state is not known."""
    if plan is None:
        return (_nothing("the host could not be probed"),)
    if record is None:
        return (_nothing("it could not be run"),)
    if record.why:
        return (_nothing(record.why),)
    return tuple(_judged(plan, record))


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    return (_nothing("the measurement was begun and has not ended"),)


def _judged(plan: Wanted, record: Record) -> Iterator[Verdict]:
    yield from threads.workers(plan, record)
    yield from threads.others(plan, record)
    yield from memory.judge(plan, record)
    yield interrupts.judge(plan, record)


def _nothing(why: str) -> Verdict:
    return Verdict(KEY, "inconclusive", "nothing", "the running server's threads and memory", why)
