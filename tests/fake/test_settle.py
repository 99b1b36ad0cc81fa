"""A host that is busy with itself is waited for, with a limit."""

from __future__ import annotations

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.state import HostState, Packages
from ktfleet.pyinfra_api import settle
from tasks import preflight
from tests.fake.clock import Clock
from tests.fake.hosts import FakeHost, execute, fleet
from tests.states import converged, workstation

PLAN = plan.make(workstation(), Workstation(), recipes.load("dsv4-flash-amxint4"))
IDLE = converged(PLAN)
BUSY = IDLE.model_copy(update={"packages": Packages(locked_by="apt-get (pid 812)")})
BOOTING = IDLE.model_copy(update={"cloud_init": "running"})


class Busy(FakeHost):
    """Tells another state at each probe; the last one for ever."""

    def answer(self, command: str) -> tuple[bool, list[str]]:
        if command.startswith("python3") and len(self.states) > 1:
            self.state = self.states.pop(0)
        return super().answer(command)

    states: list[HostState | None]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(settle, "time", made)
    return made


def run(*states: HostState | None) -> tuple[bool, Busy]:
    fake = Busy("ws01", states[0])
    fake.states = [*states, states[-1]]
    with fleet(fake) as (state, _):
        return execute(state, [(preflight.remember, PLAN)]), fake


def test_an_idle_host_is_not_waited_for(clock: Clock) -> None:
    ok, fake = run(IDLE)
    assert (ok, clock.now, fake.commands, fake.probes) == (True, 0.0, [], 1)


@pytest.mark.parametrize("busy", [BUSY, BOOTING])
def test_a_busy_host_is_waited_for(busy: HostState, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        ok, _ = run(busy, busy, busy, busy, busy, IDLE)
    assert ok
    assert 10 <= clock.now <= 30
    who = "apt-get (pid 812)" if busy is BUSY else "cloud-init"
    assert f"waiting for {who}: 0 s of at most 600 s" in caplog.text
    assert f"waiting for {who}: 15 s of at most 600 s" in caplog.text


def test_there_is_a_limit(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    ok, fake = run(BUSY)
    assert not ok
    assert "the host is busy: seen apt-get (pid 812) at work for 605 s, wanted nobody; end it" in caplog.text
    assert fake.commands == []
    assert clock.now < 700


def test_a_host_that_stops_answering_is_waited_for_too(clock: Clock) -> None:
    ok, _ = run(BUSY, BUSY, None, IDLE)
    assert ok
