"""An interrupted installation is finished, or the run stops with a line; dpkg and apt-get are stand-ins here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.state import Packages
from ktfleet.plan import apt
from tests.states import workstation

STATE = workstation()
PLAN = plan.make(STATE, Workstation(), recipes.load("dsv4-flash-amxint4"))
DPKG = """#!/bin/sh
echo "dpkg $*" >> {log}
case "$*" in
*--configure*) {configure} ;;
*--audit*) cat {audit} ;;
esac
"""
APT_GET = """#!/bin/sh
echo "apt-get $*" >> {log}
{fix}
"""


def finish(folder: Path, configure: str, fix: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    audit, log = folder / "audit", folder / "log"
    audit.write_text("gcc is only half configured\n")
    words = {"log": log, "audit": audit, "configure": configure, "fix": fix}
    for name, text in (("dpkg", DPKG), ("apt-get", APT_GET)):
        (folder / name).write_text(text.format(**words).replace("MEND", f": > {audit}"))
        (folder / name).chmod(0o755)
    (command,) = apt.finish_installation(PLAN, STATE.model_copy(update={"packages": Packages(interrupted=True)}))
    path = f"{folder}:/usr/bin:/bin"
    done = subprocess.run(["sh", "-c", command], env={"PATH": path}, capture_output=True, text=True, check=False)
    return done, log.read_text().splitlines()


def test_a_whole_installation_is_left_alone() -> None:
    assert apt.finish_installation(PLAN, STATE) == ()


@pytest.mark.parametrize("packages", [Packages(interrupted=True), Packages(interrupted=False, unfinished=("gcc",))])
def test_both_kinds_of_interruption_are_finished(packages: Packages) -> None:
    assert len(apt.finish_installation(PLAN, STATE.model_copy(update={"packages": packages}))) == 1


def test_what_dpkg_finishes_needs_no_apt(tmp_path: Path) -> None:
    done, log = finish(tmp_path, "MEND", "exit 1")
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(line.startswith("apt-get") for line in log)


def test_apt_fetches_what_dpkg_lacks(tmp_path: Path) -> None:
    done, log = finish(tmp_path, "exit 1", "MEND")
    assert done.returncode == 0
    (line,) = (line for line in log if line.startswith("apt-get"))
    assert "--no-remove --fix-broken install" in line, "nothing of the owner's is removed"


def test_what_stays_broken_stops_the_run_with_a_line(tmp_path: Path) -> None:
    done, _ = finish(tmp_path, "echo 'dpkg: error processing gcc' >&2; exit 1", "exit 100")
    assert done.returncode == 1
    first, line = done.stderr.splitlines()
    assert first == "dpkg: error processing gcc"
    assert line.startswith("an interrupted installation cannot be finished: seen the messages above, wanted every")
