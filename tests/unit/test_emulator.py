"""The lab's emulator is started again after a reboot, a crash and a boot that stands still: a stand-in for qemu."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import emulator

QUICK, FOREVER = 1.0, "600"


def run(folder: Path, *boots: str, seconds: float = QUICK) -> subprocess.CompletedProcess[str]:
    """The emulator over a script that does `boots` in turn, and then complains as qemu does."""
    for number, does in enumerate((*boots, "exit 1")):
        (folder / f"boot{number}").write_text(does)
    stand_in = 'n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count; . ./boot"$n"'
    argv = [sys.executable, emulator.__file__, "console", str(seconds), "sh", "-c", stand_in]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def boots(folder: Path) -> int:
    return int((folder / "count").read_text())


@pytest.mark.parametrize("ends", ["exit 0", "kill -SEGV $$"])
def test_a_reboot_and_a_crash_start_it_again(tmp_path: Path, ends: str) -> None:
    assert run(tmp_path, ends, ends).returncode == 1
    assert boots(tmp_path) == 3


def test_its_own_complaint_ends_it(tmp_path: Path) -> None:
    assert run(tmp_path).returncode == 1
    assert boots(tmp_path) == 1


def test_a_boot_that_stands_still_is_started_again_and_told(tmp_path: Path) -> None:
    (tmp_path / "console").write_text("lab login: \n")  # of the boot before
    done = run(tmp_path, f"exec sleep {FOREVER}")
    assert (done.returncode, boots(tmp_path)) == (1, 2)
    assert "a boot stood still: seen no login after 1 s" in done.stderr


def test_a_boot_that_asked_for_a_login_may_run_as_long_as_it_likes(tmp_path: Path) -> None:
    start = time.monotonic()
    done = run(tmp_path, "printf 'lab login: ' >>console; sleep 3; exit 0")
    assert (done.returncode, boots(tmp_path), done.stderr) == (1, 2, "")
    assert time.monotonic() - start >= 3


def test_after_two_stalls_it_waits(tmp_path: Path) -> None:
    still = f"exec sleep {FOREVER}"
    done = run(tmp_path, still, still, "sleep 3; exit 0", seconds=0.2)
    assert (done.returncode, boots(tmp_path)) == (1, 4)
    assert done.stderr.count("stood still") == 2
