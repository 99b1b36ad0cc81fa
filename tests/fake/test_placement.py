"""The placement check as pyinfra really prepares and executes it."""

from __future__ import annotations

from typing import Any

from pyinfra.api.deploy import add_deploy

from checks import placement
from ktfleet import results
from ktfleet.plan.places import MEASURE
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.states import converged, served
from tests.unit.judge.test_placement import FLEET, seen, worker

PLAN = served()


def host(measured: Any) -> MeasuredHost:
    return MeasuredHost("ws01", converged(PLAN), measured=measured)


def check(fake: MeasuredHost) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(placement.check, PLAN)])


def test_a_server_as_planned_passes() -> None:
    fake = host(seen(FLEET))
    assert check(fake)
    assert fake.ran[0].startswith(f"timeout -k 10 120 python3 -I {MEASURE}/measure.pyz placement ")
    assert {verdict.result for verdict in results.verdicts("ws01")["placement"]} == {"pass"}


def test_an_unpinned_worker_fails_the_host_and_no_answer_is_inconclusive() -> None:
    record = seen(FLEET)
    worker(record, "numa_1_t_19")["allowed"] = "20-39,60-79"
    assert not check(host(record))
    failed = [verdict for verdict in results.verdicts("ws01")["placement"] if verdict.result == "fail"]
    assert failed[0].key == "worker numa_1_t_19"
    assert not check(host(None))
    assert [verdict.result for verdict in results.verdicts("ws01")["placement"]] == ["inconclusive"]


def test_a_dry_run_reads_nothing() -> None:
    fake = host(seen(FLEET))
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, placement.check, PLAN)
    assert (fake.uploads, fake.commands, fake.ran) == ([], [], [])
