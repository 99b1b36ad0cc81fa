"""The placement proof as a pyinfra operation: read where the server's threads and memory are, judge, fail."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.judge.placement import begun, judge, wanted
from ktfleet.measure.placement import Order
from ktfleet.measure.placement_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring
from ktfleet.plan.places import MEASUREMENTS
from ktfleet.pyinfra_api.facts import host_state
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, conclude, skip

LIMIT_S = 120
"""Of the whole reading: the pages of 130 GiB are counted, in seconds."""


@operation()
def check_placement(plan: Plan, again: bool = False) -> Commands:
    """Read, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although deploy.py is to measure nothing, or has nothing to serve.
    """
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the placement is read when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    if not again and plan.not_served:
        yield from skip("placement", plan.not_served)
        return
    results.store(host.name, "placement", begun())
    yield from place_measurements()
    record = host.get_fact(MeasuredPlacement, Order(), _ignore_errors=True)
    seen = host_state(host, plan.config)
    yield from conclude("placement", judge(wanted(plan, seen) if seen else None, record))


class MeasuredPlacement(Measured):
    """Reads on the host and prints JSON."""

    record, schema = Record, SCHEMA
    look = f"sudo python3 -I {MEASUREMENTS} placement '{{}}'"

    def command(self, order: Order) -> str:
        """Everything in one run."""
        return command("placement", order, LIMIT_S)
