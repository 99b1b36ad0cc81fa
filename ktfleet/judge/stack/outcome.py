"""A verdict on one proof: that it came to its end, that it did not, or that it was not made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ktfleet.measure.stack_record import Frozen, Outcome
from ktfleet.plan.places import MEASURE
from ktfleet.translate import translate
from ktfleet.verdict import Verdict

Values = TypeVar("Values", bound=Frozen)

_LONGEST = 200
"""Characters of a last line that a verdict quotes."""

_DO = f"to see all that it says, run {MEASURE}/stack.py there with the environment's own Python"


def skipped(key: str, packages: str) -> Verdict:
    """The lock has none of the packages that a proof is about."""
    return Verdict(key, "skipped", "not looked at", "nothing", f"the lock has no {packages}")


def passed(
    key: str, wanted: str, why: str, outcome: Outcome[Values] | None, packages: str, seen: Callable[[Values], str]
) -> Verdict:
    """The verdict on a proof that passes when it comes to its end. `seen` words what it found."""
    if outcome is None:
        return skipped(key, packages)
    if outcome.proven is None:
        return failed(key, wanted, why, outcome)
    return Verdict(key, "pass", seen(outcome.proven), wanted, why)


def failed(key: str, wanted: str, why: str, outcome: Outcome[Values]) -> Verdict:
    """How it ended, its cause and remedy where we know them, else its last line."""
    known = translate(outcome.signal) or translate(outcome.said)
    if known:
        seen = outcome.ended if known.seen.strip("'") == outcome.ended else f"{outcome.ended}: {known.seen}"
        return Verdict(key, "fail", seen, wanted, known.what, known.do)
    lines = outcome.said.splitlines()
    last = f": '{lines[-1].strip()[:_LONGEST]}'" if lines else ", no word"
    return Verdict(key, "fail", f"{outcome.ended}{last}", wanted, why, _DO)
