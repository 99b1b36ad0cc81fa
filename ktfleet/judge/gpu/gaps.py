"""What was not measured: never a pass."""

from __future__ import annotations

from ktfleet.measure.gpu_record import NOT_SUPPORTED, Card, Record
from ktfleet.verdict import Verdict

WITHOUT_LOAD = "it was measured without load: an idle card shows other values"


def unknown(key: str, wanted: str, why: str) -> Verdict:
    """Something that has to be known and is not."""
    return Verdict(key, "inconclusive", "nothing", wanted, why)


def untold(key: str, wanted: str, record: Record, card: Card, field: str) -> Verdict:
    """What NVML may leave out: skipped when it says that this card has no such value, else inconclusive."""
    why = record.why(f"cards.{card.index}.{field}")
    if why == NOT_SUPPORTED:
        return Verdict(key, "skipped", "nothing", wanted, f"this card does not tell (NVML: {why})")
    return unknown(key, wanted, why)


def untold_busy(key: str, wanted: str, record: Record, card: Card, field: str) -> Verdict:
    """The same for a value that counts under load only."""
    if not record.loaded:
        return unknown(key, wanted, WITHOUT_LOAD)
    if card.busy is None:
        return unknown(key, wanted, "no load could be put on the card: see gpu kernel")
    return untold(key, wanted, record, card, f"busy.{field}")
