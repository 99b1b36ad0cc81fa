"""The server's environment: which one, what refuses it, and the commands, some of them run by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import locks, plan, recipes, verdict
from ktfleet.config import Workstation, parse
from ktfleet.host.state import Folder, HostState, Unit
from ktfleet.plan import Plan, places
from ktfleet.plan.places import STACK, STACK_CACHE, STACK_UNIT, SYSTEM_PYTHON
from ktfleet.plan.request import request
from ktfleet.plan.stack import changes, folders
from ktfleet.plan.stack.proven import KEY
from ktfleet.problem import Refused
from ktfleet.sources import Stack
from ktfleet.stack.job import load
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
GB = 10**9


def made(state: HostState | None = None, **stack: Any) -> Plan:
    return plan.make(state or workstation(), Workstation(stack=Stack(**stack), gpu=None), RECIPE)


def with_python(link: str | None) -> HostState:
    state = workstation()
    return state.model_copy(update={"links": {**state.links, SYSTEM_PYTHON: link}})


def with_free(free: int, **update: Any) -> HostState:
    state = workstation()
    mounts = {path: mount.model_copy(update={"free": free}) for path, mount in state.mounts.items()}
    return state.model_copy(update={"mounts": mounts, **update})


def refused(state: HostState, **stack: Any) -> list[str]:
    return [str(problem) for problem in made(state, **stack).refusals]


def folder(made: Plan) -> str:
    assert made.stack
    return made.stack.job.folder


def built(made: Plan, state: HostState) -> HostState:
    assert made.stack
    return state.model_copy(update={"texts": {**state.texts, made.stack.job.complete: made.stack.job.name}})


@pytest.mark.parametrize(("link", "python", "lock"), [
    ("python3.11", "/usr/bin/python3.11", "3.11"), ("python3.12", "/usr/bin/python3.12", "3.12"),
    ("/usr/bin/python3.12", "/usr/bin/python3.12", "3.12"), ("python3.10", "3.12", "3.12"),
    ("python3.13", "3.12", "3.12"), (None, "3.12", "3.12"), ("/etc/alternatives/python3", "3.12", "3.12"),
    ("python3.11-dbg", "3.12", "3.12"),
])  # fmt: skip
def test_which_python_and_which_lock(link: str | None, python: str, lock: str) -> None:
    found = made(with_python(link)).stack
    assert found
    assert (found.job.python, found.lock, found.job.managed) == (python, locks.path(lock), not python.startswith("/"))
    assert found.job.folder in folders(Workstation()), "so the probe asks for it"


def test_another_lock_or_python_is_another_environment(tmp_path: Path) -> None:
    own, other = tmp_path / "own.txt", tmp_path / "other.txt"
    own.write_text("alpha==1.0 --hash=sha256:00\n")
    other.write_text("alpha==1.1 --hash=sha256:00\n")
    found = [folder(made(lock=str(own))), folder(made(lock=str(other))), folder(made()),
             folder(made(with_python("python3.12"))), folder(made(with_python("python3.13")))]  # fmt: skip
    assert len(set(found)) == len(found)
    assert folder(made(lock=str(own), index="http://mirror/simple")) == found[0], (
        "where it comes from is not what it is"
    )


@given(st.text(), st.sampled_from(["python3.11", "python3.12", None]))
def test_the_folder_s_name_is_safe_whatever_the_link_says(link: str, good: str | None) -> None:
    found = folder(made(with_python(link if good is None else good)))
    assert found in folders(Workstation())
    assert set(found.rpartition("/")[2]) <= set("0123456789abcdef")


def test_the_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = made(index="http://mirror/simple", wheels="/srv/wheels", python_mirror="http://mirror/python").stack
    assert found
    (tmp_path / "job.json").write_text(found.job.to_json())
    assert load(tmp_path / "job.json") == found.job


@pytest.mark.parametrize(("stack", "key"), [
    ({"index": "ftp://mirror"}, "stack.index"), ({"index": "http://me:secret@mirror/simple"}, "stack.index"),
    ({"wheels": "wheels"}, "stack.wheels"), ({"wheels": "/srv/a b"}, "stack.wheels"), ({"bytes": 0}, "stack.bytes"),
    ({"cpu_variant": "--help"}, "stack.cpu_variant"), ({"lok": "x"}, "stack.lok"),
])  # fmt: skip
def test_a_wrong_key_is_one_line(stack: dict[str, Any], key: str) -> None:
    with pytest.raises(Refused) as caught:
        parse({"stack": stack}, "ws01")
    assert [problem.what for problem in caught.value.problems] == [f"ws01: {key}"]


def test_false_is_none_and_the_default_is_our_own_lock() -> None:
    assert parse({"stack": False}, "ws01").stack is None
    assert parse({}, "ws01").stack == Stack()
    for place in ("/srv/wheels", "http://mirror:8080/wheels", "https://mirror"):
        assert parse({"stack": {"wheels": place}}, "ws01").stack == Stack(wheels=place)


def test_a_lock_that_cannot_be_read(tmp_path: Path) -> None:
    (line,) = refused(workstation(), lock=str(tmp_path / "none.txt"))
    assert line == (
        f"the lock {tmp_path}/none.txt: seen no such file or directory, wanted a readable file; correct stack.lock"
    )


@pytest.mark.parametrize("text", [
    "--index-url http://elsewhere/simple\n", "-r other.txt\n", "alpha @ http://elsewhere/alpha.whl\n",
    "http://elsewhere/alpha.whl --hash=sha256:00\n", "alpha==1.0 --hash=sha256:00\n  --extra-index-url http://x/y\n",
])  # fmt: skip
def test_a_lock_that_says_where_packages_come_from(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.txt").write_text(text)
    (line,) = refused(workstation(), lock=str(tmp_path / "lock.txt"))
    assert line.startswith(f"the lock {tmp_path}/lock.txt has more than packages and hashes: seen ")


def test_ktfleet_s_own_locks_are_good() -> None:
    for link in ("python3.11", "python3.12", "python3.13"):
        assert refused(with_python(link)) == []


def test_there_is_room_for_two_environments_at_first() -> None:
    (line,) = refused(with_free(23 * GB))
    assert line.startswith("too little free space on /: seen 21934 MiB, wanted at least 23169 MiB; free some")
    assert refused(with_free(25 * GB)) == []


def test_an_upgrade_needs_one_and_a_converged_host_none() -> None:
    older = {**workstation().links, STACK: f"{places.STACKS}/0123456789ab"}
    assert refused(with_free(15 * GB, links=older)) == []
    assert len(refused(with_free(13 * GB, links=older))) == 1
    done = converged(made())
    assert refused(with_free(2 * GB, links=done.links, texts=done.texts)) == []


def test_what_was_fetched_already_does_not_refuse_the_rest() -> None:
    cache = {**workstation().folders, STACK_CACHE: Folder(uid=0, gid=0, mode="0755")}
    assert refused(with_free(5 * GB, folders=cache)) == []


def test_a_converged_host_gets_no_command() -> None:
    wanted = made()
    state = converged(wanted)
    assert [change(wanted, state) for change in (changes.prepare, changes.start, changes.switch)] == [(), (), ()]
    assert changes.nothing_to_build(wanted, state)
    assert changes.nothing_to_switch(wanted, state)


def test_without_a_stack_nothing_is_done_and_it_is_said() -> None:
    wanted = plan.make(workstation(), Workstation(stack=None), RECIPE)
    state = workstation()
    assert [change(wanted, state) for change in (changes.prepare, changes.start, changes.switch)] == [(), (), ()]
    assert changes.skipped(wanted) == "the server's environment is not installed: the configuration says stack = None"
    assert changes.skipped(made()) is None
    assert not [path for path in request(wanted.config).texts if path.startswith("/opt/ktfleet")]


def test_what_is_at_work_is_not_started_again() -> None:
    wanted, state = made(), workstation()
    assert changes.start(wanted, state)[0].endswith(f"systemctl start --no-block {STACK_UNIT}")
    working = state.model_copy(update={"units": {**state.units, STACK_UNIT: Unit(active=True)}})
    assert changes.start(wanted, working) == ()
    assert changes.start(wanted, built(wanted, state)) == ()


def test_going_back_to_what_is_there_builds_nothing() -> None:
    wanted = made()
    state = converged(wanted)
    later = state.model_copy(update={"links": {**state.links, STACK: f"{places.STACKS}/0123456789ab"}})
    assert changes.start(wanted, later) == ()
    assert len(changes.switch(wanted, later)) == 1


def shell(command: str, root: Path) -> subprocess.CompletedProcess[str]:
    text = command.replace("/opt/ktfleet", str(root))
    return subprocess.run(("sh", "-c", text), capture_output=True, text=True, check=False)


def test_the_switch_as_a_shell_runs_it(tmp_path: Path) -> None:
    wanted = made()
    (command,) = changes.switch(wanted, built(wanted, workstation()))
    target = folder(wanted).replace("/opt/ktfleet", str(tmp_path))
    link = tmp_path / "stack"
    for _ in range(2):
        assert shell(command, tmp_path).returncode == 0
        assert str(link.readlink()) == target
        assert sorted(path.name for path in tmp_path.iterdir()) == ["stack"], "nothing is left beside it"
        link.unlink()
        (tmp_path / "stack.new").symlink_to("left by an interrupted run")
        link.symlink_to("older")
    assert shell(command, tmp_path).returncode == 0
    link.unlink()
    link.mkdir()
    done = shell(command, tmp_path)
    assert done.returncode != 0
    assert done.stderr.startswith(f"{link} is not a symlink: seen a file or folder, wanted ktfleet's own link;")
    assert link.is_dir()


@pytest.mark.parametrize(("update", "result", "seen"), [
    ({"links": {STACK: None}}, "fail", "none"),
    ({"links": {STACK: "/opt/ktfleet/stacks/0123456789ab"}}, "fail", "/opt/ktfleet/stacks/0123456789ab"),
    ({"texts": {}}, "inconclusive", "nothing"),
    ({"unreadable": {STACK: "permission denied"}, "links": {STACK: None}}, "inconclusive", "nothing"),
])  # fmt: skip
def test_the_verdict(update: dict[str, Any], result: str, seen: str) -> None:
    wanted = made()
    state = converged(wanted)
    changed = {key: {**getattr(state, key), **value} if key == "links" else value for key, value in update.items()}
    found = {judged.key: judged for judged in verdict.drift(wanted, state.model_copy(update=changed))}
    assert (found[KEY].result, found[KEY].seen) == (result, seen)


def test_a_link_to_an_environment_that_is_not_complete_fails() -> None:
    wanted = made()
    assert wanted.stack
    state = converged(wanted)
    cut = state.model_copy(update={"texts": {**state.texts, wanted.stack.job.complete: None}})
    found = {judged.key: judged for judged in verdict.drift(wanted, cut)}
    assert (found[KEY].result, found[KEY].seen) == ("fail", "it, not complete")
    assert len(changes.start(wanted, cut)) == 1
