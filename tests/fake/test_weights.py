"""The weights' tasks as pyinfra really prepares and executes them, and the waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Data, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import told
from ktfleet.plan.places import CONVERT_UNIT, DOWNLOAD_UNIT, FSTAB, LOCK
from ktfleet.pyinfra_api import waiting
from ktfleet.sources import Weights
from tasks import weights
from tests.fake.clock import Clock
from tests.fake.hosts import FakeHost, execute, fleet
from tests.states import converged, with_data_disk, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
DATA = Data(mount="/srv/models", label="models")
PLAN = plan.make(workstation(), Workstation(data=DATA, weights=Weights()), RECIPE)
TASKS = (weights.mount_data, weights.download, weights.convert)
DONE = with_data_disk(converged(PLAN), PLAN)
LINE = "the hub refuses x: seen 401, wanted to be let in; put a token there"


def fresh() -> HostState:
    state = workstation()
    return state.model_copy(
        update={
            "mounts": {**state.mounts, DATA.mount: state.mounts["/"]},
            "links": {**state.links, DATA.device: "../../sdb1"},
            "texts": {**state.texts, FSTAB: "UUID=1 / ext4 defaults 0 1"},
        }
    )


def answer(active: str, state: str, *problems: str) -> str:
    shown = f"ActiveState={active}\nResult=success\nExecMainStatus=0"
    fields = {"state": state, "step": "downloading", "done": 1, "total": 2, "rate": 1, "left_s": 1}
    return f"{shown}\n{json.dumps({**fields, 'problems': problems})}"


class Host(FakeHost):
    """Its units answer in turn; the last answer stays. It is complete when the last download has ended."""

    def __init__(self, state: HostState, **answers: list[str]) -> None:
        super().__init__("ws01", state)
        self.answers = {told.command(f"ktfleet-{unit}.service"): list(lines) for unit, lines in answers.items()}

    def answer(self, command: str) -> tuple[bool, list[str]]:
        waiting = self.answers.get(command)
        if waiting:
            return True, (waiting.pop(0) if len(waiting) > 1 else waiting[0]).splitlines()
        return super().answer(command)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    caplog.set_level("INFO", logger="pyinfra")
    return made


def run(fake: FakeHost, *tasks: Any) -> bool:
    with fleet(fake) as (state, _):
        return execute(state, [(task, PLAN) for task in tasks or TASKS])


def test_a_converged_host_gets_no_command_and_one_probe() -> None:
    fake = FakeHost("ws01", DONE)
    assert run(fake)
    assert (fake.commands, fake.probes) == ([], 1)


def test_a_fresh_host_gets_everything_in_its_order() -> None:
    done = [answer("active", "running"), answer("inactive", "done")]
    fake = Host(fresh(), download=done, convert=done)
    assert run(fake)
    order = [
        *(LOCK, f" {FSTAB}", "mkdir -p /srv/models", "mount /srv/models", "install -y --no-install-recommends git"),
        *("base64 -d", "weights.json", f"start --no-block {DOWNLOAD_UNIT}", f"start --no-block {CONVERT_UNIT}"),
    ]
    found = [next(i for i, command in enumerate(fake.commands) if part in command) for part in order]
    assert found == sorted(found)


def test_the_waiting_says_how_far_it_is(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    fake = Host(fresh(), download=[*[answer("active", "running")] * 20, answer("inactive", "done")])
    with fleet(fake) as (state, hosts):
        assert waiting.wait_for(state, hosts["ws01"], DOWNLOAD_UNIT, False)
    said = [record.message for record in caplog.records if "downloading" in record.message]
    assert len(said) == 5, "once in half a minute, and at the end"
    assert "downloading: 0.0 GB of 0.0 GB (50 %), 0.0 MB/s, 1 s left" in said[0]


def test_a_failed_download_fails_the_host_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    fake = Host(fresh(), download=[answer("failed", "failed", LINE)], convert=[answer("inactive", "done")])
    assert not run(fake)
    assert LINE in caplog.text
    assert not any(f"start --no-block {CONVERT_UNIT}" in command for command in fake.commands)


def test_a_killed_conversion_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    killed = "ActiveState=failed\nResult=oom-kill\nExecMainStatus=9"
    fake = Host(fresh(), download=[answer("inactive", "done")], convert=[killed])
    assert not run(fake)
    assert "ktfleet-convert.service ended without a word: seen oom-kill, status 9" in caplog.text


def test_a_host_that_says_nothing_is_given_up(caplog: pytest.LogCaptureFixture, clock: Clock) -> None:
    fake = Host(fresh(), download=["nonsense"])
    with fleet(fake) as (state, hosts):
        assert not waiting.wait_for(state, hosts["ws01"], DOWNLOAD_UNIT, False)
    assert "ktfleet-download.service cannot be asked: seen no answer for 120 s" in caplog.text


def test_without_weights_it_is_said_and_nothing_done(caplog: pytest.LogCaptureFixture) -> None:
    made = plan.make(workstation(), Workstation(), RECIPE)
    fake = FakeHost("ws01", workstation())
    with fleet(fake) as (state, _):
        assert execute(state, [(task, made) for task in TASKS])
    assert "no weights are got: the configuration says weights = None" in caplog.text
    assert fake.commands == []
