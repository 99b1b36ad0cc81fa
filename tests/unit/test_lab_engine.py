"""The lab's engine reads a command line as the real parser does: what it takes in the lab, that one takes, too."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.plan import launch
from tests import servers
from tests.states import workstation

PLAIN = ("--model-path", "/nowhere", "--served-model-name", "lab", "--port", "1", "--kt-cpuinfer", "4")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    with zipfile.ZipFile(servers.write_engine(folder)) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def started(site: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-m", launch.MODULE, *words]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True)


@pytest.mark.parametrize(("words", "why"), [
    (("--kt-cpuinfers", "4"), "unrecognized arguments: --kt-cpuinfers 4"),
    (("--kt-cpu", "4"), "unrecognized arguments: --kt-cpu 4"),
    (("--kt-cpuinfer", "four"), "argument --kt-cpuinfer: invalid int value: 'four'"),
    (("--kt-numa-nodes", "0,1"), "argument --kt-numa-nodes: invalid int value: '0,1'"),
    (("--kt-expert-placement-strategy", "lopsided"), "invalid choice: 'lopsided'"),
    (("--preferred-sampling-params", "{"), "argument --preferred-sampling-params: invalid loads value: '{'"),
    (("--enable-metrics", "yes"), "unrecognized arguments: yes"),
    (("--model-path",), "argument --model-path/--model: expected one argument"),
])  # fmt: skip
def test_what_the_real_parser_refuses_ends_it(site: Path, words: Sequence[str], why: str) -> None:
    done = started(site, (*PLAIN, *words))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("launch_server.py: error: ")
    assert why in line


def test_a_missing_model_path_ends_it(site: Path) -> None:
    done = started(site, PLAIN[2:])
    assert "the following arguments are required: --model-path/--model" in done.stderr


@pytest.mark.parametrize("name", recipes.names())
def test_it_takes_the_command_line_of_every_recipe(site: Path, name: str) -> None:
    """And ends where it looks for the model."""
    made = plan.make(workstation(), Workstation(recipe=name), recipes.load(name))
    done = started(site, made.launch.argv[3:])
    assert done.stdout.startswith("Load weight begin")
    assert "FileNotFoundError" in done.stderr
