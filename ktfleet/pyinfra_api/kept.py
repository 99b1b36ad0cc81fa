"""Measurements of an earlier run that still hold: a converged run takes none again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pyinfra import host, logger

from ktfleet import results
from ktfleet.plan import Plan
from ktfleet.plan.circumstances import Circumstance, circumstances
from ktfleet.pyinfra_api.facts import host_state
from ktfleet.verdict import summary


def circumstances_of(plan: Plan, depends_on: tuple[Circumstance, ...]) -> dict[str, str] | None:
    """What a measurement of this host, taken now, holds for. None: that cannot be told."""
    seen = host_state(host, plan.config)
    found = circumstances(plan, seen) if seen else None
    return {name: found[name] for name in depends_on} if found else None


def still_holds(check: str, plan: Plan, now: Mapping[str, str] | None) -> bool:
    """Whether the latest verdicts of a check are good ones and were found in the same circumstances; says so."""
    latest = results.checks(host.name).get(check)
    if plan.config.measure == "always" or latest is None or now is None or latest.holds_for != now:
        return False
    # What was bad may be repaired by now.
    if not latest.verdicts or not all(verdict.good for verdict in latest.verdicts):
        return False
    age = datetime.now(UTC).replace(microsecond=0) - datetime.fromisoformat(latest.taken)
    told = f"{summary(latest.verdicts)}, measured {age} ago; nothing that they depend on has changed"
    logger.info(f"{host.print_prefix}{check}: {told}")
    return True
