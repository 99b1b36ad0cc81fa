"""Which measurements a deploy takes, and what it does to a server for them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from checks import api, bandwidth, canary, decode, experts, gpu, placement
from ktfleet import plan, recipes, results
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import Plan
from ktfleet.plan.places import SERVER_UNIT
from tasks import measuring
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.fake.test_bandwidth import DIMMS
from tests.states import converged, served, with_data_disk, workstation
from tests.unit.judge.test_bandwidth import record

SERVED = served()
IDLE = plan.make(workstation(), Workstation(), recipes.load("dsv4-flash-amxint4"))
EVERY = (gpu, bandwidth, experts, placement, api, decode, canary)
OF_A_SERVER = (placement, api, decode, canary)
BANDWIDTH = record().model_dump(by_alias=True)
STOP, START = f"systemctl stop {SERVER_UNIT}", f"systemctl start --no-block {SERVER_UNIT}"


def configured(made: Plan, **config: Any) -> Plan:
    return replace(made, config=made.config.model_copy(update=config))


def running(made: Plan, **more: Any) -> HostState:
    """A host that serves."""
    return with_data_disk(converged(made), made).model_copy(update={"dimms": DIMMS, **more})


def deploy(fake: MeasuredHost, made: Plan, *checks: Any, again: bool = False) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(partial(each.check, again=again), made) for each in checks])


def test_with_measure_never_no_check_runs_and_nothing_is_installed() -> None:
    made, fake = configured(SERVED, measure="never"), MeasuredHost("ws01", running(SERVED), measured={})
    assert deploy(fake, made, *(each for each in EVERY))
    assert (fake.ran, fake.uploads, results.verdicts("ws01")) == ([], [], {})
    with fleet(fake, connector=Connector) as (state, _):
        assert execute(state, [(measuring.prepare, made)])
    assert not [command for command in fake.commands if "apt-get" in command]


def test_what_measurements_need_is_installed_once() -> None:
    fresh = workstation()
    fake = MeasuredHost("ws01", fresh)
    with fleet(fake, connector=Connector) as (state, _):
        assert execute(state, [(measuring.prepare, IDLE)])
    (install,) = [command for command in fake.commands if "apt-get" in command]
    assert install.endswith("install -y --no-install-recommends bubblewrap gcc libc6-dev >/dev/null")
    installed = {**converged(IDLE).packages.installed, "bubblewrap": "1", "gcc": "2", "libc6-dev": "3"}
    packages = converged(IDLE).packages.model_copy(update={"installed": installed})
    fake = MeasuredHost("ws01", converged(IDLE).model_copy(update={"packages": packages}))
    with fleet(fake, connector=Connector) as (state, _):
        assert execute(state, [(measuring.prepare, IDLE)])
    assert not [command for command in fake.commands if "apt-get" in command]


@pytest.mark.parametrize("check", OF_A_SERVER)
def test_where_nothing_is_served_a_server_is_not_asked(check: Any) -> None:
    fake = MeasuredHost("ws01", converged(IDLE), measured={})
    assert deploy(fake, IDLE, check)
    assert fake.ran == []
    (verdict,) = results.verdicts("ws01")[check.__name__.rpartition(".")[2]]
    assert (verdict.result, verdict.why) == ("skipped", IDLE.not_served)


@pytest.mark.parametrize("check", OF_A_SERVER)
def test_asked_for_by_itself_a_check_measures_all_the_same(check: Any) -> None:
    fake = MeasuredHost("ws01", converged(IDLE), measured={})
    assert not deploy(fake, configured(IDLE, measure="never"), check, again=True)
    assert len(fake.ran) == 1


def test_the_expert_kernel_is_skipped_without_its_packages() -> None:
    bare = plan.make(workstation(), Workstation(stack=None), recipes.load("dsv4-flash-amxint4"))
    fake = MeasuredHost("ws01", converged(bare), measured={})
    assert deploy(fake, bare, experts)
    assert {verdict.result for verdict in results.verdicts("ws01")["experts"]} == {"skipped"}


def test_a_server_is_left_alone_and_an_earlier_good_measurement_has_to_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="pyinfra")
    assert deploy(
        MeasuredHost("ws01", converged(IDLE).model_copy(update={"dimms": DIMMS}), measured=BANDWIDTH), IDLE, bandwidth
    )
    held = results.checks("ws01")["bandwidth"].holds_for
    assert held
    assert held["boot"] == converged(IDLE).kernel.boot_id
    kernel = running(SERVED).kernel.model_copy(update={"boot_id": "another"})
    fake = MeasuredHost("ws01", running(SERVED, kernel=kernel), measured=BANDWIDTH)
    assert deploy(fake, SERVED, bandwidth)
    assert fake.ran == []
    assert "but the server runs; interrupt = true stops it for a new one" in caplog.text
    assert results.checks("ws01")["bandwidth"].holds_for == held, "it is still the earlier boot's"


def test_without_an_earlier_one_it_is_measured_and_not_decided() -> None:
    fake = MeasuredHost("ws01", running(SERVED), measured={**BANDWIDTH, "why": "server running"})
    assert not deploy(fake, SERVED, bandwidth)
    assert {verdict.why for verdict in results.verdicts("ws01")["bandwidth"]} == {"server running"}


@pytest.mark.parametrize("measured", [BANDWIDTH, None])
def test_interrupted_it_is_stopped_before_and_started_after_whatever_was_measured(measured: Any) -> None:
    made = configured(SERVED, interrupt=True)
    fake = MeasuredHost("ws01", running(SERVED), measured=measured)
    assert deploy(fake, made, bandwidth) == (measured is not None)
    order = [command for command in fake.commands if "systemctl" in command]
    assert [command.partition("systemctl")[2] for command in order] == [
        line.partition("systemctl")[2] for line in (STOP, START)
    ]
    assert len(fake.ran) == 1


def test_a_host_that_serves_nothing_is_not_interrupted() -> None:
    fake = MeasuredHost("ws01", converged(IDLE).model_copy(update={"dimms": DIMMS}), measured=BANDWIDTH)
    assert deploy(fake, configured(IDLE, interrupt=True), bandwidth)
    assert not [command for command in fake.commands if "systemctl" in command]
