"""The canary as a pyinfra operation: ask the running server, run its code in a sandbox there, judge."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.judge.canary import begun, judge
from ktfleet.measure.canary import Order
from ktfleet.measure.canary_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring
from ktfleet.plan.circumstances import ALL
from ktfleet.plan.places import MEASUREMENTS
from ktfleet.pyinfra_api import kept
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, conclude, skip

LIMIT_S = 7200
"""Of the whole canary: 22 answers, some of a thinking model."""


@operation()
def check_canary(plan: Plan, again: bool) -> Commands:
    """Ask, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although an earlier measurement still holds.
    """
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the canary is asked when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    if not again and plan.not_served:
        yield from skip("canary", plan.not_served)
        return
    holds_for = kept.circumstances_of(plan, ALL)
    if not again and kept.holds("canary", plan, holds_for):
        return
    results.store(host.name, "canary", begun())
    yield from place_measurements()
    record = host.get_fact(MeasuredCanary, order(plan), _ignore_errors=True)
    yield from conclude("canary", judge(record), holds_for)


def order(plan: Plan) -> Order:
    """What to ask whom."""
    other = plan.config.reference
    url, model = (other.url, other.model) if other else (None, None)
    return Order(url=plan.config.server.url, reference=url, reference_model=model)


class MeasuredCanary(Measured):
    """Runs the canary on the host and reads its JSON."""

    record, schema = Record, SCHEMA
    look = f'sudo python3 -I {MEASUREMENTS} canary \'{{"url": "http://ADDRESS:PORT"}}\''

    def command(self, order: Order) -> str:
        """All questions in one run."""
        return command("canary", order, LIMIT_S)
