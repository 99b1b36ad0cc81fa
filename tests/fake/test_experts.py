"""The check of the expert kernel as pyinfra really prepares and executes it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from pyinfra.api.deploy import add_deploy

from checks import experts
from ktfleet import plan, recipes, results
from ktfleet.config import Workstation
from ktfleet.plan.places import STACK_PYTHON
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.states import converged, workstation
from tests.unit.judge.test_experts import MEASURED

PLAN = plan.make(workstation(), Workstation(), recipes.load("dsv4-flash-amxint4-top4"))


def check(measured: Any) -> tuple[bool, MeasuredHost]:
    fake = MeasuredHost("ws01", converged(PLAN), measured=measured)
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(experts.check, PLAN)]), fake


def test_the_recipes_layer_is_measured_in_the_plans_pools() -> None:
    good, fake = check(MEASURED)
    assert good
    assert fake.ran[0].startswith(f"timeout -k 10 180 sudo -H -u ktfleet {STACK_PYTHON} -I ")
    order = json.loads(shlex.split(fake.ran[0])[-1])
    assert (order["method"], order["experts"], order["top_k"], order["limit"]) == ("AMXINT4", 256, 4, 10.0)
    assert (order["nodes"]["1"], order["others"][0]) == (list(range(20, 40)), 40)
    assert len(results.figures("ws01", "expert kernel tok/s")) == 1


def test_a_slow_kernel_fails_the_host_and_leaves_no_figure() -> None:
    assert not check({**MEASURED, "rounds_us": [2000.0] * 8})[0]
    assert [v.key for v in results.verdicts("ws01")["experts"] if v.result == "fail"] == ["expert kernel time"]
    assert results.figures("ws01", "expert kernel tok/s") == ()
    assert not check(None)[0]


def test_a_dry_run_measures_nothing() -> None:
    fake = MeasuredHost("ws01", converged(PLAN), measured=MEASURED)
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, experts.check, PLAN)
    assert (fake.uploads, fake.commands, fake.ran) == ([], [], [])
