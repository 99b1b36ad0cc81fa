"""The canary's check as pyinfra really prepares and executes it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from pyinfra.api.deploy import add_deploy

from checks import canary
from ktfleet import results
from ktfleet.config import Reference
from ktfleet.measure.tasks import TASKS
from ktfleet.plan.places import MEASURE
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.states import converged, served
from tests.unit.judge.test_canary import ALL, WRONG, answered

PLAN = served()
MEASURED = {
    "schema": 1, "ready": {"ready": True, "waited_s": 0.1}, "order": {"tasks": [task.name for task in TASKS]},
    "asked": [answered(task) for task in ALL],
}  # fmt: skip


def check(fake: MeasuredHost) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(canary.check, PLAN)])


def stored() -> dict[str, str]:
    return {verdict.key: verdict.result for verdict in results.verdicts("ws01")["canary"]}


def test_right_answers_pass() -> None:
    fake = MeasuredHost("ws01", converged(PLAN), measured=MEASURED)
    assert check(fake)
    assert set(stored().values()) == {"pass"}
    assert fake.ran[0].startswith(f"timeout -k 10 7200 python3 -I {MEASURE}/measure.pyz canary ")


def test_a_reference_is_asked_the_same() -> None:
    reference = Reference(url="http://192.168.1.9:8000", model="full")
    made = replace(PLAN, config=PLAN.config.model_copy(update={"reference": reference}))
    fake = MeasuredHost("ws01", converged(PLAN), measured=MEASURED)
    with fleet(fake, connector=Connector) as (state, _):
        execute(state, [(canary.check, made)])
    asked = json.loads(shlex.split(fake.ran[0])[-1])
    assert (asked["reference"], asked["reference_model"]) == ("http://192.168.1.9:8000", "full")
    assert asked["url"] == "http://127.0.0.1:30000"


def test_one_wrong_answer_fails_the_host() -> None:
    asked = [answered("fib", run=WRONG) if one["task"] == "fib" else one for one in MEASURED["asked"]]
    assert not check(MeasuredHost("ws01", converged(PLAN), measured={**MEASURED, "asked": asked}))
    assert stored()["canary fib"] == "fail"


def test_no_answer_is_inconclusive_and_a_dry_run_asks_nothing() -> None:
    assert not check(MeasuredHost("ws01", converged(PLAN), measured=None))
    assert stored() == {"canary": "inconclusive"}
    fake = MeasuredHost("ws01", converged(PLAN), measured=MEASURED)
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, canary.check, PLAN)
    assert fake.ran == []
