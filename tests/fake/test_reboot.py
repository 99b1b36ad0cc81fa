"""The reboot: only when needed, believed only when another boot id answers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat

import pytest
from pyinfra.api.deploy import add_deploy
from pyinfra.connectors.local import LocalConnector

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.pyinfra_api import reboot
from tasks import kernel
from tests.fake.clock import Clock
from tests.fake.hosts import FakeHost, ScriptedConnector, execute, fleet
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
PLAN = plan.make(workstation(), Workstation(kernel_command_line=("mitigations",), gpu=None), RECIPE)
REBOOT = "(sleep 1; systemctl reboot) >/dev/null 2>&1 &"
BOOT_UNIT_ENDS = "timeout 300 systemctl start ktfleet-sysfs.service"


def written() -> HostState:
    """Everything is in place, but the machine still runs with its old command line."""
    state = converged(PLAN)
    return state.model_copy(update={"kernel": state.kernel.model_copy(update={"cmdline": "ro quiet"})})


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboot, "time", Clock())


KERNEL = "cat /proc/sys/kernel/osrelease"


@pytest.mark.parametrize(("seen", "good"), [("6.1.0-28", True), ("6.1.0-27", False)])
def test_a_host_that_comes_back_on_another_kernel_fails(
    seen: str, good: bool, caplog: pytest.LogCaptureFixture
) -> None:
    state = written()
    state = state.model_copy(update={"boot": state.boot.model_copy(update={"next_kernel": "6.1.0-28"})})
    fake = FakeHost("ws01", state, boot_ids=iter(["b"]), says={KERNEL: seen})
    with fleet(fake) as (pyinfra_state, _):
        assert execute(pyinfra_state, [(kernel.reboot_if_needed, PLAN)]) == good
    line = "the host came back on another kernel: seen 6.1.0-27, wanted 6.1.0-28; see GRUB_DEFAULT"
    assert (line in caplog.text) != good


def run(state: HostState, boot_ids: Iterable[str | None]) -> tuple[bool, FakeHost]:
    fake = FakeHost("ws01", state, boot_ids=iter(boot_ids))
    with fleet(fake) as (pyinfra_state, _):
        return execute(pyinfra_state, [(kernel.reboot_if_needed, PLAN)]), fake


def test_not_without_a_reason() -> None:
    ok, fake = run(converged(PLAN), [])
    assert (ok, fake.commands) == (True, [])


@pytest.mark.parametrize("before_it_is_back", [
    [None],
    ["a", None, None],
    ["a", "a", None, "a", None],
    ["a"],
])  # fmt: skip
def test_only_another_boot_id_counts_as_back(before_it_is_back: list[str | None]) -> None:
    ok, fake = run(written(), [*before_it_is_back, "b"])
    assert (ok, fake.commands) == (True, [REBOOT, BOOT_UNIT_ENDS])
    assert next(fake.boot_ids, "end") == "end", "it did not return before the other boot id"


def test_a_host_that_never_goes_down_fails(caplog: pytest.LogCaptureFixture) -> None:
    ok, _ = run(written(), repeat("a"))
    assert not ok
    assert (
        "the host did not reboot: seen the same boot id after 183 s, wanted another boot id within 900 s" in caplog.text
    )


def test_a_host_that_does_not_come_back_fails(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        ok, _ = run(written(), chain(["a", None, None], repeat(None)))
    assert not ok
    assert "the host did not come back: seen no answer for 897 s, wanted another boot id within 900 s" in caplog.text
    assert "rebooting: 33 s of at most 900 s" in caplog.text


def test_a_reboot_that_would_not_help_is_not_made(caplog: pytest.LogCaptureFixture) -> None:
    state = written()
    state = state.model_copy(update={"boot": state.boot.model_copy(update={"next_cmdline": "ro"})})
    ok, fake = run(state, [])
    assert (ok, fake.commands) == (False, [])
    assert "the next boot would not get mitigations=off" in caplog.text


def test_this_machine_is_never_rebooted(caplog: pytest.LogCaptureFixture) -> None:
    class Local(ScriptedConnector, LocalConnector):
        pass

    fake = FakeHost("@local", written())
    with fleet(fake, connector=Local) as (state, _):
        assert not execute(state, [(kernel.reboot_if_needed, PLAN)])
    assert fake.commands == []
    assert "this machine needs a reboot: seen mitigations: running nothing, next boot off" in caplog.text


def test_while_preparing_a_reboot_is_announced_and_not_made() -> None:
    fake = FakeHost("ws01", written())
    with fleet(fake, check_for_changes=True) as (state, hosts):
        add_deploy(state, kernel.reboot_if_needed, PLAN)
        assert state.get_meta_for_host(hosts["ws01"]).ops_change == 1
    assert fake.commands == []
