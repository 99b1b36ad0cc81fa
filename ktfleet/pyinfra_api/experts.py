"""The expert kernel's measurement as a pyinfra operation: run it, judge, keep the figure, fail on a bad verdict."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.judge.experts import Wanted, begun, ceiling, judge
from ktfleet.measure.experts import Order
from ktfleet.measure.experts_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring
from ktfleet.plan.circumstances import ALL
from ktfleet.plan.places import MEASUREMENTS, STACK_PYTHON
from ktfleet.pyinfra_api import kept
from ktfleet.pyinfra_api.decode import wanted as decode_wanted
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, conclude, skip

LIMIT_S = 180
"""Of the whole measurement, which is to take 60."""


@operation()
def check_experts(plan: Plan, again: bool = False) -> Commands:
    """Measure, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although an earlier measurement still holds.
    """
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the expert kernel is measured when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    if not again and plan.stack is None:
        yield from skip("experts", "no kt-kernel is installed: the configuration says stack = None")
        return
    holds_for = kept.circumstances_of(plan, ALL)
    if not again and kept.holds("experts", plan, holds_for, alone=True):
        return
    results.store(host.name, "experts", begun())
    yield from place_measurements()
    record = yield from kept.alone(plan, MeasuredExperts, order(plan))
    published = decode_wanted(plan, host.name).applicable
    layers = plan.recipe.experts.layers
    verdicts = judge(Wanted(layers, published.tok_s if published else None), record)
    most = ceiling(layers, record) if record else None
    if most is not None and all(verdict.good for verdict in verdicts):
        results.store_figure(host.name, "expert kernel tok/s", most)
    yield from conclude("experts", verdicts, holds_for)


def order(plan: Plan) -> Order:
    """One layer of the recipe, in the plan's pools."""
    experts = plan.recipe.experts
    clamps = plan.recipe.offload.clamp and experts.swiglu_limit
    return Order(
        nodes={str(node): cpus for node, cpus in plan.cores.worker_cpus.items()},
        others=plan.cores.other_cpus,
        method=plan.recipe.method,
        experts=experts.count,
        top_k=plan.recipe.top_k,
        hidden=experts.hidden,
        intermediate=experts.intermediate,
        bytes=experts.bytes,
        limit=clamps or 0.0,
    )


class MeasuredExperts(Measured):
    """Runs the measurement on the host and reads its JSON."""

    record, schema = Record, SCHEMA
    look = f"sudo {STACK_PYTHON} -I {MEASUREMENTS} experts ORDER"

    def command(self, order: Order) -> str:
        """With the server's own Python: its packages are what is measured."""
        return command("experts", order, LIMIT_S, STACK_PYTHON)
