"""What goes wrong between the controller and a host: one clear line each, nothing touched."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.deploying import dry_run
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab

TALK = "echo 'Schön, dass du da bist! {\"schema\": 0}'; sleep 1"


@contextmanager
def changed(machine: Machine, change: str, undo: str) -> Iterator[None]:
    machine.run(change, sudo=True)
    try:
        yield
    finally:
        machine.run(undo, sudo=True)


def test_a_dry_run_lists_every_difference_of_a_fresh_machine(machine: Machine) -> None:
    run = dry_run(machine)
    assert run.code == 0, run.said
    for line in (
        "differs: vm.swappiness: seen 60, wanted 1",
        "differs: transparent_hugepage: seen nothing in /proc/cmdline, wanted madvise",
        "differs: /etc/sysctl.d/zz-ktfleet.conf: seen no such file, wanted our content",
        "differs: sleep.target: seen not masked, wanted masked",
    ):
        assert line in run.said
    assert machine.run("ls /etc/sysctl.d/zz-ktfleet.conf", check=False).returncode != 0


def test_a_slow_profile_that_talks(machine: Machine) -> None:
    save, restore = "cp -p ~ops/.bashrc /tmp/bashrc", "cp -p /tmp/bashrc ~ops/.bashrc"
    with changed(machine, f"{save}; printf '%s\\n' {shlex.quote(TALK)} | cat - /tmp/bashrc > ~ops/.bashrc", restore):
        assert "Schön" in machine.run("true").stdout
        run = dry_run(machine)
    assert run.code == 0, run.said
    assert "differs: vm.swappiness: seen 60, wanted 1" in run.said


def test_a_profile_that_prints_latin_1(machine: Machine) -> None:
    save, restore = "cp -p ~ops/.bashrc /tmp/bashrc", "cp -p /tmp/bashrc ~ops/.bashrc"
    speak = "printf 'Sch\\366n, dass du da bist\\n'; printf 'Gr\\374\\337e\\n' >&2"
    with changed(machine, f"{save}; printf '%s\\n' {shlex.quote(speak)} | cat - /tmp/bashrc > ~ops/.bashrc", restore):
        shown = subprocess.run(machine.ssh_command("true"), capture_output=True, check=True)
        run = dry_run(machine)
    assert shown.stdout.startswith(b"Sch\xf6n")
    assert run.code == 0, run.said
    assert "Traceback" not in run.said
    assert "differs: vm.swappiness: seen 60, wanted 1" in run.said


def test_no_python(machine: Machine) -> None:
    with changed(machine, "mv /usr/bin/python3 /usr/bin/no-python3", "mv /usr/bin/no-python3 /usr/bin/python3"):
        run = dry_run(machine)
    assert run.code == 1
    assert "python3: not found" in run.said
    assert "lab  refused: the host cannot be probed" in run.said
    assert "Traceback" not in run.said


def test_sudo_that_wants_a_password(machine: Machine) -> None:
    # A rule for true alone, so that the undo still may: the last rule that matches wins.
    rule = "echo 'ops ALL=(ALL) PASSWD: /usr/bin/true' > /etc/sudoers.d/zz-true"
    with changed(machine, rule, "rm /etc/sudoers.d/zz-true"):
        run = dry_run(machine)
    assert run.code == 1
    assert "lab  refused: sudo wants a password: seen sudo -n refused, wanted sudo without a password" in run.said
    assert "Traceback" not in run.said


def test_a_wrong_key(machine: Machine, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    run = dry_run(machine, "--key", str(tmp_path / "other"))
    assert run.code == 1
    assert "Authentication error" in run.said
    assert "Traceback" not in run.said


def test_a_host_key_that_changed_says_so_and_how_to_accept_it(machine: Machine, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    known = machine.known_hosts.read_text()
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    machine.known_hosts.write_text(f"{known.split()[0]} {other}\n")
    try:
        run = dry_run(machine)
    finally:
        machine.known_hosts.write_text(known)
    assert run.code == 1
    assert "HOST IDENTIFICATION HAS CHANGED" in run.said
    assert "ssh-keygen -R" in run.said
    assert "Traceback" not in run.said


def test_an_unreachable_host(machine: Machine) -> None:
    run = dry_run(machine, "--port", "1")
    assert run.code == 1
    assert "Could not connect" in run.said
    assert "Traceback" not in run.said
