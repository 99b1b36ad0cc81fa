"""Verdicts on the GPU, its driver and its toolkit: a configuration and a measurement in, one verdict a thing out."""

from __future__ import annotations

from ktfleet.config import Gpu
from ktfleet.judge.gpu import card, driver, log, toolkit
from ktfleet.measure.gpu_record import Card, Record
from ktfleet.verdict import Verdict


def judge(wanted: Gpu | None, record: Record | None) -> tuple[Verdict, ...]:
    """Everything that is known of the GPU of a host. `wanted` None: the configuration has no card."""
    if wanted is None:
        why = "the configuration says gpu = None: this host has no card to serve with"
        return (Verdict("gpu", "skipped", "not looked at", "nothing", why),)
    if record is None:
        return (Verdict("gpu", "inconclusive", "nothing", "the measurement's answer", "it could not be run"),)
    return (
        *_cards(wanted, record),
        *driver.judge(wanted, record),
        *log.judge(record),
        *toolkit.judge(wanted, record),
    )


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    why = "the measurement was begun and has not ended"
    return (Verdict("gpu", "inconclusive", "nothing", "the measurement's answer", why),)


def _cards(wanted: Gpu, record: Record) -> tuple[Verdict, ...]:
    """The card that is wanted; of several such cards each, with its address in the key. Others are left alone."""
    fitting = [card for card in record.cards or () if card.capability == wanted.capability]
    if not fitting:
        missing = card.missing(wanted, record)
        rest = f"no {wanted.sm} card answered"
        return (missing, Verdict("gpu card", "inconclusive", "nothing", "every property of the card", rest))
    return tuple(verdict for one in fitting for verdict in card.judge(wanted, record, one, _mark(one, len(fitting))))


def _mark(one: Card, count: int) -> str:
    return "" if count == 1 else f" of {one.bus or one.index}"
