"""The decode rate's measurement as a pyinfra operation: run it beside the server, judge, fail on a bad verdict."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.judge.bandwidth import figure
from ktfleet.judge.decode import begun, judge, slowest
from ktfleet.judge.decode.wanted import Published, Setup, Wanted, ceiling
from ktfleet.measure.decode import Order
from ktfleet.measure.decode_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring
from ktfleet.plan.circumstances import ALL
from ktfleet.plan.places import MEASUREMENTS
from ktfleet.pyinfra_api import kept
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, conclude, skip

LIMIT_S = 3600
"""Of the whole measurement: 12 answers of 256 tokens take minutes even at a tenth of the wanted rate."""

PROBE_SHARE = 0.12
"""Of the token pool: a prompt over about a tenth of it has hung servers for good (sglang-kt #60)."""


@operation()
def check_decode(plan: Plan, again: bool) -> Commands:
    """Measure the running server, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although an earlier measurement still holds.
    """
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the decode rate is measured when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    if not again and plan.not_served:
        yield from skip("decode", plan.not_served)
        return
    holds_for = kept.circumstances_of(plan, ALL)
    if not again and kept.holds("decode", plan, holds_for):
        return
    results.store(host.name, "decode", begun())
    yield from place_measurements()
    record = host.get_fact(MeasuredDecode, order(plan), _ignore_errors=True)
    known = wanted(plan, host.name)
    verdicts = judge(known, record, results.verdicts(host.name))
    rate = slowest(known, record) if record else None
    # A rate that fails is no measure for the next one.
    if rate is not None and not any(verdict.result == "fail" for verdict in verdicts):
        results.store_figure(host.name, f"decode: {known.setup}", rate)
    yield from conclude("decode", verdicts, holds_for)


def order(plan: Plan) -> Order:
    """What to measure: prompts that the recipe's context holds, the last one beyond the part of the pool that hangs."""
    context = plan.recipe.context
    ladder = tuple(rung for rung in Order.ladder if rung + Order.ladder_tokens <= context.length)
    probe = int(context.total_tokens * PROBE_SHARE)
    return Order(url=plan.config.server.url, ladder=ladder, probe=probe if probe < context.length else 0)


def wanted(plan: Plan, name: str) -> Wanted:
    """What is known of a host, by its name in the results, before it is measured."""
    hardware, recipe, experts = plan.config.hardware, plan.recipe, plan.recipe.experts
    setup = Setup(recipe.method, recipe.top_k, _hardware(hardware.sockets, hardware.cores_per_socket))
    published = tuple(
        Published(
            one.tok_s,
            Setup(one.method, one.top_k, _hardware(one.sockets, one.cores_per_socket)),
            one.source,
            one.date.isoformat(),
        )
        for one in recipe.published
    )
    read = [results.figures(name, figure(node))[-1:] for node in plan.cores.worker_cpus]
    # Only with every node known: the slowest one counts.
    most = (
        ceiling([value for (value,) in read], experts.layers * recipe.top_k * experts.bytes)
        if read and all(read)
        else None
    )
    return Wanted(
        setup,
        published,
        spread=recipe.decode_spread,
        ceiling_tok_s=most,
        history=results.figures(name, f"decode: {setup}"),
    )


def _hardware(sockets: int, cores: int) -> str:
    return f"{sockets} sockets of {cores} cores"


class MeasuredDecode(Measured):
    """Runs the measurement on the host and reads its JSON."""

    record, schema = Record, SCHEMA
    look = f'sudo python3 -I {MEASUREMENTS} decode \'{{"url": "http://ADDRESS:PORT"}}\''

    def command(self, order: Order) -> str:
        """The whole protocol in one run: the connection to the host takes no part in any time."""
        return command("decode", order, LIMIT_S)
