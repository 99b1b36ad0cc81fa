"""A connection that ends in the middle of a run fails its host alone, with one line and no traceback."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import SSHException
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_host

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.pyinfra_api import settle
from ktfleet.pyinfra_api.lost import SayLost
from tasks import kernel, memory
from tests.fake.hosts import FakeHost, ScriptedConnector, execute, fleet
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
PLAN = plan.make(workstation(), Workstation(kernel_command_line=("mitigations",)), RECIPE)
LINE = "the connection was lost: seen its end in '{}', wanted an answer; run deploy.py again"


class Cut(ScriptedConnector):
    """Ends for good at the first command that contains what the host's data calls `cut`."""

    ended = False

    @property
    def client(self) -> Any:
        return SimpleNamespace(get_transport=lambda: SimpleNamespace(is_active=lambda: not self.ended))

    def run_shell_command(self, command: Any, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
        cut = self.host.data.get("cut")
        self.ended = self.ended or (cut is not None and cut in str(command))
        if self.ended:
            raise SSHException("the connection was closed")
        return super().run_shell_command(command)


def needs_a_reboot() -> HostState:
    state = converged(PLAN)
    return state.model_copy(update={"kernel": state.kernel.model_copy(update={"cmdline": "ro quiet"})})


@pytest.mark.parametrize(("task", "state", "cut", "operation"), [
    (memory.tune, workstation(), "sync /etc/sysctl.d/", "Memory | Place the files"),
    (kernel.reboot_if_needed, needs_a_reboot(), "systemctl reboot", "Reboot | Reboot if only that helps"),
])  # fmt: skip
def test_one_line_for_the_host_that_is_lost(
    task: Any, state: HostState, cut: str, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    fakes = FakeHost("ws01", state, data={"cut": cut}), FakeHost("ws02", converged(PLAN))
    with fleet(*fakes, connector=Cut) as (running, hosts):
        running.add_callback_handler(SayLost())
        assert not execute(running, [(task, PLAN)])
        assert running.failed_hosts == {hosts["ws01"]}
    assert caplog.text.count(LINE.format(operation)) == 1
    assert "Traceback" not in caplog.text


def test_nobody_waits_for_a_host_that_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settle, "LIMIT_S", 0)  # so that it complains where it would wait
    fake = FakeHost("ws01", workstation(), data={"cut": "python3"})
    with fleet(fake, connector=Cut) as (running, hosts), ctx_host.use(hosts["ws01"]):
        assert not settle.wait(running, hosts["ws01"], PLAN)
    assert "the host is busy" not in caplog.text


def test_a_command_that_fails_over_a_living_connection_is_another_matter(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeHost("ws01", workstation(), fails=("zz-ktfleet.conf",))
    with fleet(fake, connector=Cut) as (running, _):
        running.add_callback_handler(SayLost())
        assert not execute(running, [(memory.tune, PLAN)])
    assert "the connection was lost" not in caplog.text
