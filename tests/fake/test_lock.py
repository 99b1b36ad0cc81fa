"""Two controllers: the lock is seen, taken before the first change, and given back."""

from __future__ import annotations

import subprocess

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.lock import holder
from ktfleet.plan.places import LOCK
from ktfleet.pyinfra_api import lock
from tasks import memory, preflight
from tests.fake.hosts import FakeHost, execute, fleet
from tests.states import converged, workstation

PLAN = plan.make(workstation(), Workstation(), recipes.load("dsv4-flash-amxint4"))
SINCE = "2026-12-02T10:00:00+00:00"


def locked(text: str) -> HostState:
    state = workstation()
    return state.model_copy(update={"texts": {**state.texts, LOCK: text}})


def dead_process() -> int:
    done = subprocess.Popen(["true"])
    done.wait()
    return done.pid


def run(fake: FakeHost) -> bool:
    with fleet(fake) as (state, _):
        state.add_callback_handler(lock.ReleaseOnFailure())
        return execute(state, [(preflight.remember, PLAN), (memory.tune, PLAN), (_release, None)])


def _release(_: None) -> None:
    preflight.release()


def test_it_is_taken_once_before_the_first_change_and_given_back_after_the_last() -> None:
    fake = FakeHost("ws01", workstation())
    assert run(fake)
    about = [n for n, command in enumerate(fake.commands) if LOCK in command]
    assert about == [0, len(fake.commands) - 1]
    assert "set -C" in fake.commands[0]
    assert fake.commands[-1].endswith(f"then rm -f {LOCK}; fi")


def test_a_converged_host_is_not_locked() -> None:
    fake = FakeHost("ws01", converged(PLAN))
    assert run(fake)
    assert fake.commands == []


def test_a_failure_gives_it_back() -> None:
    fake = FakeHost("ws01", workstation(), fails=("sysctl -q",))
    assert not run(fake)
    assert "sysctl -q" in fake.commands[-2]
    assert fake.commands[-1].endswith(f"then rm -f {LOCK}; fi")


def test_who_is_too_late_changes_nothing() -> None:
    fake = FakeHost("ws01", workstation(), fails=("set -C",))
    assert not run(fake)
    assert all(LOCK in command for command in fake.commands)


def test_a_run_of_another_controller_is_named() -> None:
    problem = lock.held_by_another(locked(f"alice@desk/1f3a pid 1 since {SINCE}"))
    assert str(problem) == (
        f"another run is changing this host: seen alice@desk/1f3a pid 1 since {SINCE}, wanted nobody; "
        f"wait for it to end; if it is dead, remove {LOCK} there and run this again"
    )


def test_a_live_run_of_this_controller_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        assert lock.held_by_another(locked(holder("me", lock._controller(), sleeper.pid, SINCE)))
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_dead_run_of_this_controller_is_taken_over() -> None:
    text = holder("me", lock._controller(), dead_process(), SINCE)
    assert lock.held_by_another(locked(text)) is None
    fake = FakeHost("ws01", locked(text))
    assert run(fake)
    assert text in fake.commands[0], "only that one is removed"


@pytest.mark.parametrize("text", [None, ""])
def test_no_lock(text: str | None) -> None:
    state = workstation()
    assert lock.held_by_another(state.model_copy(update={"texts": {LOCK: text}})) is None
