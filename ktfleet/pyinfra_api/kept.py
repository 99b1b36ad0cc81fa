"""Whether a measurement is due: a converged run takes none again, and none disturbs a server without being asked to."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Any

from pyinfra import host, logger
from pyinfra.api import StringCommand
from pyinfra.api.command import PyinfraCommand

from ktfleet import results
from ktfleet.plan import Plan, jobs
from ktfleet.plan.circumstances import Circumstance, circumstances
from ktfleet.plan.places import SERVER_UNIT
from ktfleet.pyinfra_api.facts import forget, host_state
from ktfleet.pyinfra_api.measurement import Measured
from ktfleet.verdict import summary


def circumstances_of(plan: Plan, depends_on: tuple[Circumstance, ...]) -> dict[str, str] | None:
    """What a measurement of this host, taken now, holds for. None: that cannot be told."""
    seen = host_state(host, plan.config)
    found = circumstances(plan, seen) if seen else None
    return {name: found[name] for name in depends_on} if found else None


def holds(check: str, plan: Plan, now: Mapping[str, str] | None, *, alone: bool = False) -> bool:
    """Whether this run needs no measurement of this check; says why.

    It was good and was taken in the same circumstances. alone: it cannot be taken beside a server; then an earlier good
    one has to do while the server runs.
    """
    latest = results.checks(host.name).get(check)
    # What was bad may be repaired by now.
    if latest is None or not latest.verdicts or not all(verdict.good for verdict in latest.verdicts):
        return False
    if plan.config.measure != "always" and now is not None and latest.holds_for == now:
        why = "nothing that they depend on has changed"
    elif alone and _serves(plan) and not plan.config.interrupt:
        why = "something has changed since, but the server runs; interrupt = true stops it for a new one"
    else:
        return False
    age = datetime.now(UTC).replace(microsecond=0) - datetime.fromisoformat(latest.taken)
    logger.info(f"{host.print_prefix}{check}: {summary(latest.verdicts)}, measured {age} ago; {why}")
    return True


def alone(plan: Plan, measurement: type[Measured], order: Any) -> Generator[PyinfraCommand, None, Any]:
    """Measure with the machine to itself: a server is stopped and started again where the configuration lets us.

    The record, None: there is none. The server is not waited for: it comes up on its own.
    """
    interrupted = plan.config.interrupt and _serves(plan)
    if interrupted:
        logger.info(f"{host.print_prefix}the server is stopped for a measurement, and started again after it")
        yield StringCommand(f"systemctl stop {SERVER_UNIT}")
    record = host.get_fact(measurement, order, _ignore_errors=True)
    if interrupted:
        yield StringCommand(f"systemctl start --no-block {SERVER_UNIT}")
        forget(host)
    return record


def _serves(plan: Plan) -> bool:
    seen = host_state(host, plan.config)
    return seen is not None and jobs.at_work(SERVER_UNIT, seen)
