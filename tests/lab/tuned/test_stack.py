"""A small environment the whole way, in order: no index, cut, built, free, a bad upgrade, a good one, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ktfleet.config import Workstation
from ktfleet.plan.stack import folders
from ktfleet.sources import Stack
from tests import wheels
from tests.lab import gateway
from tests.lab.deploying import NO_REBOOT, Run, pyinfra
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab

LINK = "/opt/ktfleet/stack"
VALUE = f"cd / && sudo -u ktfleet {LINK}/bin/python -I -c 'import alpha; print(alpha.VALUE)'"
ENVIRONMENT_BYTES = 50_000_000


@dataclass
class Index:
    """Wheels that the machine can reach while `deploy` runs with `up`, and locks of them."""

    machine: Machine
    folder: Path
    locks: dict[str, Path] = field(default_factory=dict)

    def add(self, lock: str, *names: str, version: str) -> None:
        """A lock of packages at one version."""
        made = [
            wheels.write_wheel(self.folder, name.replace("-", "_"), version, code=f"VALUE = {version!r}\n")
            for name in names
        ]
        self.locks[lock] = self.folder / f"{lock}.txt"
        self.locks[lock].write_text(wheels.lock(*made))

    def stack(self, lock: str) -> Stack:
        return Stack(lock=str(self.locks[lock]), index=f"{gateway.URL}/simple", bytes=ENVIRONMENT_BYTES)

    def deploy(self, lock: str, deploy: str = "tests/lab/only_stack.py", *, up: bool = True) -> Run:
        arguments = (*NO_REBOOT, "--data", f"stack={self.stack(lock).model_dump_json(exclude_none=True)}")
        if not up:
            return pyinfra(self.machine, deploy, *arguments)
        with gateway.serving(self.machine.folder, self.folder):
            return pyinfra(self.machine, deploy, *arguments)

    def folder_of(self, lock: str) -> str:
        """Where the machine has it: its Python is Debian 12's."""
        return folders(Workstation(stack=self.stack(lock)))[0]

    def link(self) -> str:
        return self.machine.run(f"readlink {LINK}", check=False).stdout.strip()


@pytest.fixture(scope="module")
def index(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    made = Index(machine, tmp_path_factory.mktemp("index"))
    made.add("one", "alpha", "beta", version="1.0")
    made.add("bad", "alpha", "transformers", "transformers-kt", version="2.0")
    made.add("two", "alpha", "beta", version="3.0")
    wheels.publish(made.folder)
    yield made
    machine.run("rm -rf /opt/ktfleet", sudo=True)


@pytest.mark.long
def test_an_index_that_is_down_is_one_line(index: Index) -> None:
    run = index.deploy("one", up=False)
    assert run.code != 0
    assert "the host cannot fetch packages: seen 'cause: " in run.said, run.said
    assert f"{gateway.URL}/simple/" in run.said
    assert index.link() == ""


def test_the_next_run_builds_it_anew_and_proves_it(index: Index) -> None:
    """A reset in the middle leaves a folder that is not complete."""
    folder = index.folder_of("one")
    index.machine.run(f"mkdir -p {folder}/bin && touch {folder}/left", sudo=True)
    run = index.deploy("one")
    assert run.code == 0, run.said
    assert index.link() == folder
    assert index.machine.run(VALUE).stdout.strip() == "1.0"
    assert index.machine.run(f"ls -A {folder}").stdout.split()[0] == ".complete"
    assert index.machine.run(f"ls {folder}/left /opt/ktfleet/cache", check=False).stdout == ""


def test_the_run_after_it_changes_nothing(index: Index) -> None:
    index.deploy("one", "deploy.py", up=False)  # whatever an earlier module left
    run = index.deploy("one", "deploy.py", up=False)
    assert (run.proven, run.changed) == (True, 0), run.said


@pytest.mark.long
def test_an_upgrade_that_fails_its_proof_leaves_the_server_s_environment_alone(index: Index) -> None:
    run = index.deploy("bad")
    assert run.code != 0
    assert "stack conflicts: seen transformers beside transformers-kt" in run.said, run.said
    assert index.link() == index.folder_of("one")
    assert index.machine.run(VALUE).stdout.strip() == "1.0"


@pytest.mark.long
def test_a_good_one_is_switched_to_and_back_again(index: Index) -> None:
    run = index.deploy("two")
    assert run.code == 0, run.said
    assert index.machine.run(VALUE).stdout.strip() == "3.0"
    there = index.machine.run("ls -d /opt/ktfleet/stacks/*").stdout.split()
    assert set(there) == {index.folder_of("one"), index.folder_of("two")}, "this one and the one before it"
    run = index.deploy("one", up=False)
    assert run.code == 0, run.said
    assert index.machine.run(VALUE).stdout.strip() == "1.0"


def test_the_check_finds_what_was_installed_by_hand(index: Index) -> None:
    packages = index.machine.run(f"ls -d {LINK}/lib/*/site-packages").stdout.strip()
    index.machine.run(f"rm -r {packages}/beta.py", sudo=True)
    run = index.deploy("one", "checks/stack.py", up=False)
    assert run.code != 0
    assert "stack files: seen beta: " in run.said, run.said
