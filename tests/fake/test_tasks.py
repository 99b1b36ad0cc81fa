"""The tasks as pyinfra really prepares and executes them."""

from __future__ import annotations

from typing import Any

import pytest
from pyinfra.api.deploy import add_deploy

from checks import drift
from ktfleet import plan, recipes, results
from ktfleet.config import Workstation
from ktfleet.plan import Plan
from ktfleet.plan.places import APT, BEFORE, LOCK, SYSFS, WRITE_SYSFS
from ktfleet.plan.row import Writer
from ktfleet.verdict import drift as drift_of
from tasks import cpu, kernel, memory, power, preflight, service, system
from tests.fake.hosts import FakeHost, execute, fleet
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
PLAN = plan.make(workstation(), Workstation(kernel_command_line=("mitigations",)), RECIPE)
TUNE = tuple(
    (deploy, PLAN)
    for deploy in (
        *(preflight.remember, system.tune, kernel.tune, memory.tune, cpu.tune, power.tune),
        service.prepare,
    )
)

NOT_SERVING = {s.key for s in PLAN.of(Writer.SERVER)}
"""Skipped: the server does not run."""


def run(fake: FakeHost, *deploys: Any) -> bool:
    with fleet(fake) as (state, _):
        return execute(state, deploys)


def test_a_converged_host_is_probed_once_and_gets_no_command() -> None:
    fake = FakeHost("ws01", converged(PLAN))
    assert run(fake, *TUNE, (kernel.reboot_if_needed, PLAN))
    assert (fake.commands, fake.probes) == ([], 1)


def test_a_fresh_host_gets_everything_the_record_first() -> None:
    fake = FakeHost("ws01", workstation())
    assert run(fake, *TUNE)
    order = [BEFORE, f" {APT}", f" {WRITE_SYSFS}", "systemctl daemon-reload", "update-grub", "sysctl -q -w"]
    places = [next(i for i, command in enumerate(fake.commands) if part in command) for part in order]
    assert f"{WRITE_SYSFS} {SYSFS['cpu']}" in fake.commands
    assert any(command.startswith("systemctl -q mask sleep.target") for command in fake.commands)
    assert fake.commands[-1] == "systemctl daemon-reload", "the server's unit is prepared last"
    assert places == sorted(places)
    assert LOCK in fake.commands[0]
    assert places[:2] == [1, 2]


def test_the_state_is_read_again_after_a_change() -> None:
    """A command of one operation must not be repeated by the next on stale knowledge."""
    fake = FakeHost("ws01", workstation())
    run(fake, *TUNE)
    operations_with_changes = 13
    assert fake.probes == operations_with_changes


@pytest.mark.parametrize("fails", [BEFORE, WRITE_SYSFS, "daemon-reload", "update-grub", "sysctl -q", SYSFS["cpu"]])
def test_a_failing_command_ends_this_host(fails: str) -> None:
    fake = FakeHost("ws01", workstation(), fails=(fails,))
    assert not run(fake, *TUNE)
    assert fails in fake.commands[-1], "nothing is done after the failure"


def test_one_failing_host_leaves_the_others_alone() -> None:
    bad = FakeHost("ws01", workstation(), fails=("sysctl",))
    good = FakeHost("ws02", workstation())
    with fleet(bad, good) as (state, hosts):
        assert not execute(state, TUNE)
        assert state.failed_hosts == {hosts["ws01"]}
    assert any(SYSFS["cpu"] in command for command in good.commands)


def test_a_host_that_stops_answering_fails_alone() -> None:
    lost, good = FakeHost("ws01", None), FakeHost("ws02", converged(PLAN))
    with fleet(lost, good) as (state, hosts):
        assert not execute(state, TUNE)
        assert state.failed_hosts == {hosts["ws01"]}


def test_drift_of_a_converged_host_is_no_change() -> None:
    fake = FakeHost("ws01", converged(PLAN))
    with fleet(fake) as (state, hosts):
        assert execute(state, [(drift.check, PLAN)])
        assert state.get_results_for_host(hosts["ws01"]).ops == 1
    assert fake.commands == []
    (stored,) = results.load()
    results_of = {verdict.key: verdict.result for verdict in stored.checks["drift"].verdicts}
    assert {key for key, result in results_of.items() if result != "pass"} == NOT_SERVING


def test_a_run_that_dies_after_a_change_leaves_the_host_unproven() -> None:
    run(FakeHost("ws01", converged(PLAN)), (drift.check, PLAN))
    run(FakeHost("ws01", workstation(), fails=("daemon-reload",)), *TUNE)
    (stored,) = results.load()
    assert [verdict.result for verdict in stored.checks["drift"].verdicts] == ["inconclusive"]


def test_drift_reads_the_host_again_whatever_was_known() -> None:
    fake = FakeHost("ws01", converged(PLAN))
    run(fake, *TUNE, (drift.check, PLAN))
    assert fake.probes == 2


def _drifted(made: Plan) -> Any:
    state = converged(made)
    return state.model_copy(update={"sysctl": {**state.sysctl, "vm.swappiness": "60"}})


def test_drift_fails_the_drifted_host_alone_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = FakeHost("ws01", _drifted(PLAN)), FakeHost("ws02", converged(PLAN))
    with caplog.at_level("INFO"), fleet(bad, good) as (state, hosts):
        assert not execute(state, [(drift.check, PLAN)])
        assert state.failed_hosts == {hosts["ws01"]}
    lines = [record.getMessage() for record in caplog.records if "vm.swappiness" in record.getMessage()]
    assert len(lines) == 1
    assert "seen 60, wanted 1" in lines[0]
    assert "Why: Nothing is locked in memory" in lines[0]


def test_drift_of_a_silent_host_fails_as_inconclusive(caplog: pytest.LogCaptureFixture) -> None:
    assert not run(FakeHost("ws01", None), (drift.check, PLAN))
    assert "inconclusive" in caplog.text


def prepared(fake: FakeHost, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a dry run lists as different."""
    with caplog.at_level("INFO"), fleet(fake, check_for_changes=True) as (state, _):
        for function, made in (*TUNE, (kernel.reboot_if_needed, PLAN), (drift.check, PLAN)):
            add_deploy(state, function, made)
    assert fake.commands == []
    return [message.partition("differs: ")[2] for message in caplog.messages if "differs: " in message]


def test_a_dry_run_lists_every_difference_and_touches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    listed = prepared(FakeHost("ws01", workstation()), caplog)
    assert "vm.swappiness: seen 60, wanted 1" in listed
    assert "mitigations: seen nothing in /proc/cmdline, wanted off" in listed
    assert any(line.startswith("/etc/sysctl.d/zz-ktfleet.conf: seen ") for line in listed)
    wanted = {verdict.key for verdict in drift_of(PLAN, workstation()) if not verdict.good}
    assert {line.partition(": seen ")[0] for line in listed} == wanted


def test_a_dry_run_of_a_converged_host_lists_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert prepared(FakeHost("ws01", converged(PLAN)), caplog) == []
