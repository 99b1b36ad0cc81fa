"""What is tried while the old server still runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ktfleet.host import bundle
from ktfleet.server import preflight
from tests.unit.server.test_supervise import job

OURS = {10: preflight.UNIT}
APPS = "10, /opt/ktfleet/stack/bin/python, 27000\n11, /usr/bin/blender, 4000\n"


def asked(free: str, apps: str) -> list[str]:
    answers = {"--query-gpu=memory.free": free, "--query-compute-apps=pid,process_name,used_memory": apps}
    return [str(p) for p in preflight.card(27_715, answers.__getitem__, lambda pid: OURS.get(pid, ""))]


def test_the_memory_of_our_own_server_counts_as_free() -> None:
    assert asked("1000\n", APPS) == []


def test_what_others_hold_is_named() -> None:
    (line,) = asked("600\n", APPS)
    assert line == (
        "the card has no room for the server: seen 27600 MiB free; blender (pid 11) has 4000, wanted 27715 MiB; stop "
        "what holds it"
    )
    (line,) = asked("600\n", "")
    assert "nobody it names" in line


@pytest.mark.parametrize("said", ["", "No devices were found\n", "[N/A]\n"])
def test_a_card_that_says_nothing_refuses_nothing(said: str) -> None:
    assert asked(said, "") == []


def test_what_the_server_imports_must_be_there(tmp_path: Path) -> None:
    wanted = job(tmp_path)
    assert list(preflight.problems(wanted)) == []
    overlay = {**wanted.environment, preflight.EXTENSION: "ktfleet_no_such_package"}
    (problem,) = preflight.problems(type(wanted)(**{**vars(wanted), "environment": overlay}))
    assert str(problem).startswith(
        f"the server's package ktfleet_no_such_package: seen not there, wanted importable by {sys.executable}"
    )
    (problem,) = preflight.problems(type(wanted)(**{**vars(wanted), "environment": {}}))
    assert problem.what == "the server's package sglang"


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    wanted = job(tmp_path)
    broken = type(wanted)(**{**vars(wanted), "argv": (str(tmp_path / "python"), *wanted.argv[1:])})
    (problem,) = preflight.problems(broken)
    assert "No such file" in problem.seen


def test_the_program_says_each_problem_on_a_line(tmp_path: Path) -> None:
    wanted = job(tmp_path)
    broken = type(wanted)(**{**vars(wanted), "environment": {}})
    program = (sys.executable, "-I", "-c", bundle.source(bundle.SERVER), "check")
    for asked, lines in ((wanted, 0), (broken, 1)):
        done = subprocess.run(program, input=asked.to_json(), capture_output=True, text=True, check=False)
        assert (done.returncode, len(done.stderr.splitlines())) == (lines, lines)
