"""Whether the overlay that a recipe needs would let the server start in this environment."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.judge.stack.outcome import failed, skipped
from ktfleet.measure.stack_record import Record
from ktfleet.verdict import Verdict


def judge(record: Record) -> Iterator[Verdict]:
    """Its own checks, and where there is a card, the hooks put in place."""
    key, wanted = "overlay", "its settings good, upstream unchanged, its self-test passed"
    why = "the server does not start with an overlay that finds anything wrong"
    outcome, hooks = record.proofs.overlay, record.proofs.hooks
    if outcome is None:
        yield skipped(key, "kt-kernel with sglang-kt")
    elif outcome.proven is None:
        yield failed(key, wanted, why, outcome)
    else:
        yield Verdict(key, "pass", f"{outcome.proven.asked}, in {outcome.seconds:.0f} s", wanted, why)
    key, wanted = "overlay's hooks", "in place"
    if not record.gpu:
        reason = "upstream cannot be imported without the card's driver"
        yield Verdict(key, "skipped", "not looked at", wanted, reason)
    elif hooks is None:
        yield skipped(key, "kt-kernel with sglang-kt")
    elif hooks.proven is None:
        yield failed(key, wanted, why, hooks)
    else:
        yield Verdict(key, "pass", f"in place in {hooks.seconds:.0f} s", wanted, why)
