"""Verdicts on the server's environment: a configuration and a measurement in, one verdict a thing out."""

from __future__ import annotations

from ktfleet.config import Workstation
from ktfleet.judge.stack import card, imports, overlaid, packages
from ktfleet.measure.stack_record import Record
from ktfleet.verdict import Verdict


def judge(config: Workstation, record: Record | None, *, overlay: bool = False) -> tuple[Verdict, ...]:
    """Everything that is known of the environment. Without one in the configuration nothing is looked at.

    overlay: whether the recipe needs one.
    """
    if config.stack is None:
        why = "the configuration says stack = None: this host has no environment to serve with"
        return (Verdict("stack", "skipped", "not looked at", "nothing", why),)
    if record is None:
        return (Verdict("stack", "inconclusive", "nothing", "the proof's answer", "it could not be run"),)
    return (
        *packages.judge(record),
        *imports.judge(config.stack.cpu_variant, record),
        *(overlaid.judge(record) if overlay else ()),
        *card.judge(config.gpu, record),
    )


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of the proof and its end: nothing."""
    why = "the proof was begun and has not ended"
    return (Verdict("stack", "inconclusive", "nothing", "the proof's answer", why),)
