"""The whole deploy on Debian 13, where kernel, systemd and Python are others."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.deploying import Run, files, pyinfra
from tests.lab.image import image
from tests.lab.machine import Machine

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("debian-13"), image("trixie")) as running:
        # Up to Debian 12 this file has the last word. Here systemd does not read it at all.
        running.run("echo vm.swappiness=77 > /etc/sysctl.conf", sudo=True)
        yield running


@pytest.fixture(scope="module")
def boot_of_before(machine: Machine) -> str:
    assert machine.run("systemctl --failed --no-legend").stdout == ""
    return machine.boot_id()


@pytest.fixture(scope="module")
def first(machine: Machine, boot_of_before: str) -> Run:
    assert boot_of_before
    return pyinfra(machine, "deploy.py")


def test_it_is_tuned_rebooted_once_and_proven(machine: Machine, boot_of_before: str, first: Run) -> None:
    assert first.proven, first.said
    assert first.said.count("rebooting: transparent_hugepage") == 1
    assert machine.boot_id() != boot_of_before
    assert machine.run("cat /proc/cmdline").stdout.split()[-1] == "transparent_hugepage=madvise"


@pytest.mark.usefixtures("first")
def test_nothing_failed_on_the_way_up(machine: Machine) -> None:
    assert machine.run("systemctl --failed --no-legend").stdout == ""


@pytest.mark.usefixtures("first")
def test_our_value_holds_beside_an_ignored_sysctl_conf(machine: Machine) -> None:
    assert machine.run("cat /etc/sysctl.conf").stdout == "vm.swappiness=77\n"
    assert machine.run("cat /proc/sys/vm/swappiness").stdout == "1\n"


def test_its_own_python_ran_the_probe(machine: Machine) -> None:
    shown = machine.run("python3 -c 'import sys; print(sys.version_info[:2])'").stdout
    assert shown == "(3, 13)\n", "the probe runs with python3"
    assert machine.run("ls -d /usr/bin/python3.?*").stdout == "/usr/bin/python3.13\n", "and there is no other"


@pytest.mark.usefixtures("first")
def test_the_record_of_before_has_this_systems_values(machine: Machine) -> None:
    record = json.loads(machine.run("cat /var/lib/ktfleet/before.json", sudo=True).stdout)
    assert record["vm.swappiness"] == {"vm.swappiness": "60"}


@pytest.mark.usefixtures("first")
def test_the_second_run_does_nothing_at_all(machine: Machine) -> None:
    boot_id, before = machine.boot_id(), files(machine)
    run = pyinfra(machine, "deploy.py")
    assert run.proven, run.said
    assert run.changed == 0
    assert (machine.boot_id(), files(machine)) == (boot_id, before)
