"""Things that break in the middle of a deploy: one clear line, nothing half done, and the next run converges."""

from __future__ import annotations

import shlex
import subprocess
import time

import pytest

from tests.lab.deploying import PYINFRA, ROOT, Run, environment, files, pyinfra
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab

GRUB_CFG = "/boot/grub/grub.cfg"
BROKEN_SCRIPT = "/etc/grub.d/99_broken"
HALF_WRITTEN = "find / -xdev -name '*.ktfleet-new' -o -xdev -name '*.ktfleet-old'"
STAGES = (  # files that a run makes, in its order; some of them in every test run
    "/var/lib/ktfleet/before.json",
    pytest.param("/usr/local/lib/ktfleet/write-sysfs", marks=pytest.mark.long),
    pytest.param("/etc/systemd/system/multi-user.target.wants/ktfleet-sysfs.service", marks=pytest.mark.long),
    "/etc/default/grub.d/zz-ktfleet.cfg",
    "/etc/sysctl.d/zz-ktfleet.conf",
    pytest.param("/etc/ktfleet/sysfs.d/memory.conf", marks=pytest.mark.long),
    pytest.param("/etc/ktfleet/sysfs.d/cpu.conf", marks=pytest.mark.long),
    pytest.param("/etc/systemd/system/suspend.target", marks=pytest.mark.long),
)
CUT = "timeout 300 sh -c 'until [ -e {file} ]; do sleep 0.05; done; pkill -KILL -f \"[s]shd(-session)?: ops\"'"
MORE_PAGES = 'hugepages={"policy": "hugetlb", "per_node": 128}'
"""Something to change on a converged machine."""

LOST = "the connection was lost: seen its end in '"


def cut_run(machine: Machine, file: str) -> Run:
    """A deploy whose connection is cut as soon as `file` is there."""
    watcher = CUT.format(file=shlex.quote(file))
    machine.run(f"rm -f {file}; systemctl daemon-reload; setsid {watcher} >/dev/null 2>&1 </dev/null &", sudo=True)
    return pyinfra(machine, "deploy.py")


def half_written(machine: Machine) -> str:
    return machine.run(HALF_WRITTEN, sudo=True).stdout


def test_a_failing_update_grub_puts_everything_back(machine: Machine) -> None:
    before = files(machine)
    machine.run(f"printf '#!/bin/sh\\nexit 1\\n' > {BROKEN_SCRIPT}; chmod +x {BROKEN_SCRIPT}", sudo=True)
    run = pyinfra(machine, "deploy.py")
    machine.run(f"rm {BROKEN_SCRIPT}", sudo=True)
    assert run.code == 1
    assert run.said.count("update-grub failed: seen its messages above, wanted a new grub.cfg; repair that") == 1
    assert "Traceback" not in run.said
    after = files(machine)
    assert after[GRUB_CFG] == before[GRUB_CFG]
    assert [path for path in after if "/default/grub.d/" in path] == [p for p in before if "/default/grub.d/" in p]
    assert half_written(machine) == ""


def test_a_repaired_host_converges(machine: Machine) -> None:
    run = pyinfra(machine, "deploy.py")
    assert run.proven, run.said
    assert half_written(machine) == ""


@pytest.mark.parametrize("file", STAGES)
def test_a_cut_connection(machine: Machine, file: str) -> None:
    """Each goes on from where the one before was cut."""
    cut = cut_run(machine, file)
    assert cut.code == 1, cut.said
    assert cut.said.count(LOST) == 1, cut.said
    assert "Traceback" not in cut.said
    assert file in machine.run(f"ls {file}", sudo=True).stdout


def test_a_run_after_all_the_cuts_converges(machine: Machine) -> None:
    again = pyinfra(machine, "deploy.py")
    assert again.proven, again.said
    assert half_written(machine) == ""


@pytest.mark.parametrize(("broken", "repair", "line"), [
    ("mount --bind /etc /etc && mount -o remount,ro,bind /etc", "umount --lazy /etc",
     "lab  refused: the file system of /etc is read-only: seen /dev/vda1 mounted ro on /etc, wanted a writable one; "),
    ("fallocate -l $(( $(df --output=avail -k / | tail -1) - 102400 ))KiB /var/filler", "rm /var/filler",
     "lab  refused: too little free space on /: seen "),
])  # fmt: skip
def test_a_file_system_that_takes_nothing_is_refused(machine: Machine, broken: str, repair: str, line: str) -> None:
    before = files(machine)
    machine.run(broken, sudo=True)
    try:
        run = pyinfra(machine, "deploy.py", "--data", MORE_PAGES)
    finally:
        machine.run(repair, sudo=True)
    assert run.code == 1, run.said
    assert line in run.said
    assert "Nothing was touched." in run.said
    assert "Traceback" not in run.said
    assert files(machine) == before


def test_a_run_of_somebody_else_is_named(machine: Machine) -> None:
    other = "alice@desk/1f3a5c7e pid 4711 since 2026-12-02T10:00:00+00:00"
    machine.run(f"mkdir -p /run/ktfleet; printf %s '{other}' > /run/ktfleet/lock", sudo=True)
    before = files(machine)
    run = pyinfra(machine, "deploy.py", "--data", MORE_PAGES)
    assert files(machine) == before
    machine.run("rm /run/ktfleet/lock", sudo=True)
    assert run.code == 1
    assert f"lab  refused: another run is changing this host: seen {other}, wanted nobody; wait for it" in run.said


def test_two_controllers_at_once(machine: Machine) -> None:
    """Both are admitted; the slower one is told who was first, and nothing is written twice."""
    settings = {**environment(machine), "KTFLEET_RESULTS": str(machine.folder / "other-results")}
    command = [str(PYINFRA), "-y", "inventory/lab.py", "deploy.py", "--data", MORE_PAGES]
    machine.run("rm -f /etc/ktfleet/sysfs.d/memory.conf", sudo=True)
    both = [
        subprocess.Popen(
            command, cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = [run.communicate()[0] for run in both]
    codes = sorted(run.returncode for run in both)
    # The slower one may also come so late that there is nothing left to do.
    assert codes in ([0, 1], [0, 0]), said
    assert (1 in codes) == any("another run is changing this host: seen " in text for text in said)
    assert not any("Traceback" in text for text in said)
    assert machine.run("ls /run/ktfleet/lock", sudo=True, check=False).returncode != 0, "the lock was given back"
    assert pyinfra(machine, "deploy.py").proven


@pytest.mark.long
def test_apt_at_work_for_a_minute_is_waited_for(machine: Machine) -> None:
    hold = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, 2); time.sleep(60)"
    machine.run(f'setsid python3 -c "{hold}" >/dev/null 2>&1 </dev/null &', sudo=True)
    start = time.monotonic()
    run = pyinfra(machine, "deploy.py")
    assert run.proven, run.said
    assert "waiting for python3 (pid " in run.said
    assert time.monotonic() - start > 40, "it was waited for"
