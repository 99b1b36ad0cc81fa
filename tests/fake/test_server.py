"""The server's task and check as pyinfra really prepares and executes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.deploy import add_deploy

from checks import server as check
from ktfleet import plan, recipes, results
from ktfleet.config import Data, Key, Server, Workstation
from ktfleet.measure.server_record import SCHEMA
from ktfleet.plan import Plan, told
from ktfleet.plan.places import LOCK, SERVER_PROGRESS, SERVER_STATUS, SERVER_UNIT
from ktfleet.pyinfra_api import waiting
from ktfleet.sources import Weights
from tasks import server
from tests.fake.clock import Clock
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector as Measuring
from tests.fake.measuring import MeasuredHost
from tests.states import converged, with_data_disk, workstation
from tests.unit.judge.test_overlay import NOW
from tests.unit.judge.test_overlay import told as overlay_told

KEY = "0123456789abcdef-s3cret"
PLACE = "/etc/ktfleet/server.key"
SERVED = {"recipe": "dsv4-flash-mxfp4", "data": Data(mount="/srv/models", label="models"), "weights": Weights()}
MEASURED = {"schema": SCHEMA, "ready": {"ready": True, "waited_s": 0.1}}


def made(**config: Any) -> Plan:
    wanted = Workstation(**{**SERVED, **config})
    return plan.make(workstation(), wanted, recipes.load(wanted.recipe, wanted.override, "ws01"))


def answer(active: str, state: str, *problems: str) -> str:
    shown = f"ActiveState={active}\nResult=success\nExecMainStatus=0"
    return f"{shown}\n{json.dumps({'state': state, 'step': 'loading layer 3 of 43', 'problems': problems})}"


@dataclass
class Host(MeasuredHost):
    """It serves once its unit was started, unless that answers otherwise. `key`: how its key's file looks."""

    wanted: Plan | None = None
    unit: list[str] = field(default_factory=lambda: [answer("active", "running"), answer("active", "done")])
    key: str = ""
    given: list[str] = field(default_factory=list)

    def answer(self, command: str) -> tuple[bool, list[str]]:
        if command == told.command(SERVER_UNIT):
            said = self.unit.pop(0) if len(self.unit) > 1 else self.unit[0]
            self.state = served(self.wanted) if '"done"' in said and self.wanted else self.state
            return True, said.splitlines()
        if command.startswith('echo "$(stat'):
            return True, ["Welcome", self.key]
        if f"restart --no-block {SERVER_UNIT}" in command and self.wanted:
            state = served(self.wanted)
            self.state = state.model_copy(update={"texts": {**state.texts, SERVER_PROGRESS: None}})
        return super().answer(command)


class Connector(Measuring):
    def run_shell_command(self, command: Any, *rest: Any, **arguments: Any) -> Any:
        if arguments.get("_stdin"):
            self.fake.given.append(arguments["_stdin"])
        return super().run_shell_command(command, *rest, **arguments)


def served(wanted: Plan) -> Any:
    state = with_data_disk(converged(wanted), wanted)
    installed = {**state.packages.installed, "haproxy": "2.6"}
    return state.model_copy(update={"packages": state.packages.model_copy(update={"installed": installed})})


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(waiting, "time", Clock())
    caplog.set_level("DEBUG", logger="pyinfra")


@pytest.fixture
def public(tmp_path: Path) -> Plan:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return made(server=Server(host="0.0.0.0", key=Key(file=str(path))))


def run(fake: Host, wanted: Plan, deploy: Callable[[Plan], None] = server.serve) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(deploy, wanted)])


def places_of(fake: Host, *parts: str) -> list[int]:
    return [next(i for i, command in enumerate(fake.commands) if part in command) for part in parts]


def test_a_first_start_in_its_order(public: Plan, caplog: pytest.LogCaptureFixture) -> None:
    fake = Host("ws01", with_data_disk(workstation(), public), wanted=public)
    assert run(fake, public)
    order = places_of(fake, LOCK, "base64 -d", "weights verify", "server check", "server.json",
                      f"enable {SERVER_UNIT}", f"restart --no-block {SERVER_UNIT}")  # fmt: skip
    assert order == sorted(order)
    assert "the server is started: it does not run" in caplog.text
    assert "loading layer 3 of 43" in caplog.text


def test_the_key_comes_by_standard_input_and_is_nowhere_else(public: Plan, caplog: pytest.LogCaptureFixture) -> None:
    fake = Host("ws01", served(public), wanted=public)
    assert run(fake, public)
    (command,) = [command for command in fake.commands if PLACE in command]
    assert "umask 077" in command
    assert fake.given == [KEY]
    assert KEY not in caplog.text + "".join(fake.commands) + repr(results.load())


@pytest.mark.parametrize(("seen", "brought"), [
    ("root 600 {digest}", False), ("root 644 {digest}", True), ("ops 600 {digest}", True), ("root 600 other", True),
    ("", True),
])  # fmt: skip
def test_a_key_that_is_there_is_left_alone(public: Plan, seen: str, brought: bool) -> None:
    fake = Host("ws01", served(public), wanted=public)
    fake.key = seen.format(digest=hashlib.sha256(f"{KEY}\n".encode()).hexdigest())
    assert run(fake, public)
    assert bool(fake.given) == brought
    assert bool(fake.commands) == brought


def test_a_key_that_cannot_be_had_fails_that_host(caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(server=Server(host="0.0.0.0", key=Key(command=("false",))))
    fake = Host("ws01", served(wanted), wanted=wanted)
    assert not run(fake, wanted)
    assert "the key's command false: seen exit status 1, wanted the key" in caplog.text


def test_a_converged_host_gets_no_command_and_one_probe() -> None:
    wanted = made()
    fake = Host("ws01", served(wanted), wanted=wanted)
    assert run(fake, wanted)
    assert (fake.commands, fake.uploads, fake.probes) == ([], [], 1)


def test_a_change_restarts_it_once_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(override={"context": {"running_requests": 2}})
    fake = Host("ws01", served(made()), wanted=wanted)
    assert run(fake, wanted)
    assert "the server is started: another command line" in caplog.text
    assert len([command for command in fake.commands if "restart" in command]) == 1
    fake.commands.clear()
    assert run(fake, wanted)
    assert fake.commands == []


@pytest.mark.parametrize("failing", ["weights verify", "server check"])
def test_what_fails_its_trial_leaves_the_old_server_alone(failing: str) -> None:
    wanted = made(override={"context": {"running_requests": 2}})
    fake = Host("ws01", served(made()), wanted=wanted, fails=(failing,))
    assert not run(fake, wanted)
    assert not any(
        "restart" in command or ("server.json" in command and "mv -f" in command) for command in fake.commands
    )


def test_a_server_that_fails_is_its_line(caplog: pytest.LogCaptureFixture) -> None:
    wanted = made()
    line = "the server was killed for memory: seen 1 of its processes killed, wanted room; look"
    fake = Host("ws01", with_data_disk(workstation(), wanted), unit=[answer("activating", "failed", line)])
    assert not run(fake, wanted)
    assert line in caplog.text


def test_without_a_stack_it_is_said_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(stack=None)
    fake = Host("ws01", converged(wanted), wanted=wanted)
    assert run(fake, wanted)
    assert run(fake, wanted, check.check)
    assert "nothing is served: the configuration says stack = None" in caplog.text
    (found,) = results.load()
    assert {judged.key: judged.result for judged in found.checks["server"].verdicts} == {"server": "skipped"}


@pytest.mark.parametrize(("measured", "good"), [
    (MEASURED, True), ({**MEASURED, "ready": {"ready": False, "waited_s": 60, "why": "no token"}}, False),
    (None, False), ("{", False), ({"schema": 99}, False),
])  # fmt: skip
def test_the_check_asks_and_judges(measured: Any, good: bool) -> None:
    wanted = made()
    fake = Host("ws01", served(wanted), wanted=wanted, measured=measured)
    assert run(fake, wanted, check.check) == good
    assert "measure.pyz server" in fake.ran[0]


def test_the_check_shows_and_judges_the_overlay(caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(recipe="dsv4-flash-mxfp4-top4")
    told = overlay_told(wanted.recipe).model_dump_json(by_alias=True).replace("schema_version", "schema")
    seen = {"text": told, "pids": [77], "now": NOW}
    fake = Host("ws01", served(wanted), wanted=wanted, measured={**MEASURED, "overlay": seen})
    assert run(fake, wanted, check.check)
    assert f'"overlay": "{SERVER_STATUS}"' in fake.ran[0]
    assert "effective top-k: 4 of 6" in caplog.text
    assert "overlay: MXFP4, the method's own clamp, top 4 of 6 experts of a decoded token (process 77" in caplog.text
    fake.measured = {**MEASURED, "overlay": {**seen, "text": None, "why": f"{SERVER_STATUS}: no such file"}}
    assert not run(fake, wanted, check.check)
    assert "overlay: seen nothing, wanted the running server's own status" in caplog.text


def test_a_dry_run_changes_nothing(public: Plan) -> None:
    fake = Host("ws01", workstation(), wanted=public)
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, server.serve, public)
        add_deploy(state, check.check, public)
    assert (fake.commands, fake.uploads, fake.given, fake.ran) == ([], [], [], [])
