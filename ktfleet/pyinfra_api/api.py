"""The trial of the server's OpenAI interface as a pyinfra operation: run it there, judge, fail on a bad verdict."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.judge.api import Wanted, begun, judge
from ktfleet.measure.api import Order
from ktfleet.measure.api_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring
from ktfleet.plan.circumstances import ALL
from ktfleet.plan.places import MEASUREMENTS, STACK_PYTHON
from ktfleet.pyinfra_api import kept
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, conclude, skip

LIMIT_S = 1800
"""Of all tries: ten answers of at most 512 tokens."""


@operation()
def check_api(plan: Plan, again: bool = False) -> Commands:
    """Try every feature, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although an earlier trial still holds.
    """
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the server's interface is tried when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    if not again and plan.not_served:
        yield from skip("api", plan.not_served)
        return
    holds_for = kept.circumstances_of(plan, ALL)
    if not again and kept.holds("api", plan, holds_for):
        return
    results.store(host.name, "api", begun())
    yield from place_measurements()
    named = plan.recipe.api
    order = Order(plan.config.server.url, named.model_name)
    record = host.get_fact(TriedApi, order, _ignore_errors=True)
    known = Wanted(named.model_name, named.tool_call_parser is not None, named.reasoning_parser is not None)
    yield from conclude("api", judge(known, record), holds_for)


class TriedApi(Measured):
    """Runs the tries on the host and reads their JSON."""

    record, schema = Record, SCHEMA
    look = f'sudo {STACK_PYTHON} -I {MEASUREMENTS} api \'{{"url": "http://ADDRESS:PORT"}}\''

    def command(self, order: Order) -> str:
        """With the server's own Python: its packages bring the official client."""
        return command("api", order, LIMIT_S, STACK_PYTHON)
