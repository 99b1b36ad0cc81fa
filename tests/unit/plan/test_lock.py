"""The lock as a shell takes and gives it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ktfleet.plan import lock

ALICE = lock.holder("alice", "desk/1f3a", 4711, "2026-12-02T10:00:00+00:00")
BOB = lock.holder("bob", "it's a host", 1, "2026-12-02T10:00:01+00:00")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "run" / "lock"
    monkeypatch.setattr(lock, "LOCK", str(place))
    return place


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True)


def test_one_run_takes_it_and_another_is_told_who(file: Path) -> None:
    assert shell(lock.take(ALICE)).returncode == 0
    assert file.read_text() == ALICE
    other = shell(lock.take(BOB))
    assert (other.returncode, other.stderr) == (
        1, f"another run is changing this host: seen {ALICE}, wanted nobody; wait for it to end\n",
    )  # fmt: skip
    assert file.read_text() == ALICE


def test_only_the_holder_gives_it_back(file: Path) -> None:
    shell(lock.take(ALICE))
    assert shell(lock.release(BOB)).returncode == 0
    assert file.exists()
    assert shell(lock.release(ALICE)).returncode == 0
    assert not file.exists()
    assert shell(lock.release(ALICE)).returncode == 0, "a reboot may have freed it"


def test_the_lock_of_a_dead_run_is_taken_over_unless_somebody_was_faster(file: Path) -> None:
    shell(lock.take(ALICE))
    assert shell(lock.take_over(ALICE, BOB)).returncode == 0
    assert file.read_text() == BOB
    assert shell(lock.take_over(ALICE, ALICE)).returncode == 1
    assert file.read_text() == BOB


@pytest.mark.parametrize(("text", "pid"), [
    (ALICE, 4711), (BOB, None), ("", None), ("garbage", None), (ALICE.replace("4711", "9" * 30), None),
    (ALICE.replace("desk", "other"), None),
])  # fmt: skip
def test_the_process_of_a_holder_on_this_controller(text: str, pid: int | None) -> None:
    assert lock.process(text, "desk/1f3a") == pid
