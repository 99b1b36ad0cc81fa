"""The decode check as pyinfra really prepares and executes it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pyinfra.api.deploy import add_deploy

from checks import decode
from ktfleet import results
from ktfleet.config import Hardware, Server, Workstation
from ktfleet.judge.bandwidth import figure as figure_of
from ktfleet.plan.places import MEASURE
from ktfleet.pyinfra_api import decode as pyinfra_decode
from ktfleet.verdict import Verdict
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.states import converged, served
from tests.unit.judge.test_decode import RATES, run

PLAN = served()
MEASURED = {
    "schema": 1, "ready": {"ready": True, "waited_s": 0.1}, "order": {"probe": 0},
    "runs": [run(prompt, rate) for prompt in ("prose", "code") for rate in RATES],
}  # fmt: skip


TOP_4 = served("dsv4-flash-amxint4-top4")


def test_a_figure_is_only_compared_with_its_own_setup() -> None:
    """The published 28 tok/s are of four experts a token: never a measure of six."""
    figure = pyinfra_decode.wanted(TOP_4, "ws01").applicable
    assert figure is not None
    assert (figure.tok_s, figure.setup.top_k) == (28.0, 4)
    assert pyinfra_decode.wanted(PLAN, "ws01").applicable is None
    six = TOP_4.recipe.model_copy(update={"offload": TOP_4.recipe.offload.model_copy(update={"top_k": 6})})
    assert pyinfra_decode.wanted(replace(TOP_4, recipe=six), "ws01").applicable is None
    other = Workstation(hardware=Hardware(cores_per_socket=16))
    assert pyinfra_decode.wanted(replace(TOP_4, config=other), "ws01").applicable is None


def test_fewer_experts_raise_the_ceiling() -> None:
    for node in TOP_4.cores.worker_cpus:
        results.store_figure("ws01", figure_of(node), 50.0)
    top_6, top_4 = (pyinfra_decode.wanted(made, "ws01").ceiling_tok_s for made in (PLAN, TOP_4))
    assert top_6 == pytest.approx(30.7, rel=0.01)
    assert top_4 == pytest.approx(46.0, rel=0.01)


def test_it_asks_for_what_the_context_holds_at_the_servers_own_address() -> None:
    asked = pyinfra_decode.order(replace(TOP_4, config=Workstation(server=Server(port=8080))))
    context = TOP_4.recipe.context
    assert asked.url == "http://127.0.0.1:8080"
    assert context.total_tokens / 10 < asked.probe < context.length
    assert asked.ladder == (1024, 8192, 16384)
    small = context.model_copy(update={"length": 2048})
    short = replace(TOP_4, recipe=TOP_4.recipe.model_copy(update={"context": small}))
    assert (pyinfra_decode.order(short).ladder, pyinfra_decode.order(short).probe) == ((1024,), 0)


def check(fake: MeasuredHost, *, again: bool = False) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(partial(decode.check, again=again), PLAN)])


def host(measured: dict[str, Any] | str | None, **more: Any) -> MeasuredHost:
    return MeasuredHost("ws01", converged(PLAN), measured=measured, **more)


def stored() -> dict[str, str]:
    return {verdict.key: verdict.result for verdict in results.verdicts("ws01")["decode"]}


def test_it_is_placed_once_run_and_judged() -> None:
    fake = host(MEASURED)
    assert check(fake)
    assert fake.uploads == [f"{MEASURE}/measure.pyz.new"]
    assert fake.commands == [
        f"(umask 022 && mkdir -p {MEASURE})",
        f"chmod 0644 {MEASURE}/measure.pyz.new && mv {MEASURE}/measure.pyz.new {MEASURE}/measure.pyz",
    ]
    (ran,) = fake.ran
    assert ran.startswith(f'timeout -k 10 3600 python3 -I {MEASURE}/measure.pyz decode \'{{"url": ')
    assert stored()["decode of prose"] == "pass"
    again = host(MEASURED, placed=True)
    assert check(again, again=True)
    assert (again.uploads, again.commands) == ([], [])
    assert again.ran == [ran]


def test_a_rate_that_still_holds_is_not_measured_again() -> None:
    assert check(host(MEASURED))
    second = host(None)
    assert check(second)
    assert (second.uploads, second.commands, second.ran) == ([], [], [])


def test_a_rate_is_kept_and_a_drop_fails_and_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    check(host(MEASURED))
    slow = {**MEASURED, "runs": [run(prompt, 20.0) for prompt in ("prose", "code") for _ in range(5)]}
    governor = Verdict("/sys/x/scaling_governor", "fail", "powersave", "performance", "slow clocks", "set it")
    results.store("ws01", "drift", (governor,))
    for _ in range(2):
        with caplog.at_level("INFO"):
            assert not check(host(slow, placed=True), again=True)
    assert stored()["decode history"] == "fail"
    assert "the CPUs are not at their full clock" in caplog.text


def test_how_steady_a_rate_has_to_be_is_the_recipes() -> None:
    rates = (20.0, 21.0, 22.0, 23.0, 24.0)
    unsteady = {**MEASURED, "runs": [run(prompt, rate) for prompt in ("prose", "code") for rate in rates]}
    assert not check(host(unsteady))
    assert stored()["decode of prose"] == "inconclusive"
    tolerant = replace(PLAN, recipe=PLAN.recipe.model_copy(update={"decode_spread": 0.5}))
    with fleet(host(unsteady), connector=Connector) as (state, _):
        execute(state, [(decode.check, tolerant)])
    assert stored()["decode of prose"] == "pass"


@pytest.mark.parametrize("said", [None, "{", '{"schema": 99}', '{"schema": 1}', "no JSON", "[1]"])
def test_a_measurement_that_says_nothing_useful_is_inconclusive(said: str | None) -> None:
    assert not check(host(said))
    assert stored() == {"decode rate": "inconclusive"}


def test_a_dry_run_measures_nothing() -> None:
    fake = host(MEASURED)
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, decode.check, PLAN)
    assert (fake.uploads, fake.commands, fake.ran) == ([], [], [])
