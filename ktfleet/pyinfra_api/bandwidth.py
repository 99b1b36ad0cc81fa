"""The memory bandwidth's measurement as a pyinfra operation: run it, judge, keep the figures, fail on a bad verdict."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.judge.bandwidth import begun, figures, judge
from ktfleet.measure.bandwidth import Order
from ktfleet.measure.bandwidth_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring, worksheet
from ktfleet.plan.circumstances import HOST
from ktfleet.plan.places import MEASUREMENTS
from ktfleet.pyinfra_api import kept
from ktfleet.pyinfra_api.facts import host_state
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, conclude

LIMIT_S = 180
"""Of the whole measurement, which is to take 30: a node without enough memory is slow to say so."""


@operation()
def check_bandwidth(plan: Plan, again: bool) -> Commands:
    """Measure, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although an earlier measurement still holds.
    """
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the memory bandwidth is measured when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    holds_for = kept.circumstances_of(plan, HOST)
    if not again and kept.holds("bandwidth", plan, holds_for, alone=True):
        return
    results.store(host.name, "bandwidth", begun())
    yield from place_measurements()
    record = yield from kept.alone(plan, MeasuredBandwidth, _order(plan))
    for name, value in (figures(record) if record else {}).items():
        results.store_figure(host.name, name, value)
    seen = host_state(host, plan.config)
    yield from conclude("bandwidth", judge(worksheet.theory_gb_s(seen) if seen else {}, record), holds_for)


def _order(plan: Plan) -> Order:
    """One CPU of each worker core; where huge pages are reserved, no more memory than their pool has."""
    nodes = {str(node): cpus for node, cpus in plan.cores.worker_cpus.items()}
    policy = plan.memory.policy
    # One page is left over, for alignment.
    mib = min(1024, (plan.memory.hugepages_per_node - 1) * 2) if policy == "hugetlb" else 1024
    return Order(nodes, policy, mib)


class MeasuredBandwidth(Measured):
    """Runs the measurement on the host and reads its JSON."""

    record, schema = Record, SCHEMA
    look = f'sudo python3 -I {MEASUREMENTS} bandwidth \'{{"nodes": {{"0": [0]}}}}\''

    def command(self, order: Order) -> str:
        """Everything in one run."""
        return command("bandwidth", order, LIMIT_S)
