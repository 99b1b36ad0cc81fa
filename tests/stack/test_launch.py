"""Every recipe's command line, read by the real parser of the locked stack."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.plan import catalogue
from tests.states import workstation

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
PARSE = """
import argparse, json, os, sys
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from sglang.srt.server_args import ServerArgs

class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(message)

parser = Parser(allow_abbrev=False)
ServerArgs.add_cli_args(parser)
known = {flag: action.dest for action in parser._actions for flag in action.option_strings}
found = {}
for name, argv in json.load(sys.stdin).items():
    try:
        parsed = vars(parser.parse_args(argv))
        given = {known[word.partition("=")[0]] for word in argv if word.startswith("--")}
        found[name] = {dest: parsed[dest] for dest in given}
    except ValueError as error:
        found[name] = str(error)
json.dump(found, told)
"""


def run(python: Path, *arguments: str | Path, stdin: str = "") -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([python, *arguments], input=stdin, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def parsed(stack_python: Path) -> dict[str, Any]:
    """What the parser makes of each recipe's argv, and of some that are wrong: the values, or an error's text."""
    found = {name: argv(name) for name in recipes.names()}
    good = found["dsv4-flash-amxint4"]
    found["unknown"] = [*good, "--kt-cpu-infer", "40"]
    found["abbreviated"] = [*good, "--kt-cpu", "40"]
    found["choice"] = [*good, "--kt-expert-placement-strategy", "best"]
    parsed: dict[str, Any] = json.loads(run(stack_python, "-c", PARSE, stdin=json.dumps(found)))
    return parsed


def argv(name: str) -> list[str]:
    made = plan.make(workstation(), Workstation(), recipes.load(name))
    assert made.refusals == ()
    return list(made.launch.argv[3:])


@pytest.mark.parametrize("name", recipes.names())
def test_the_real_parser_takes_every_recipe(parsed: dict[str, Any], name: str) -> None:
    found, recipe = parsed[name], recipes.load(name)
    assert isinstance(found, dict), found
    assert (found["kt_cpuinfer"], found["kt_threadpool_count"], found["kt_numa_nodes"]) == (40, 2, [0, 1])
    assert (found["kt_method"], found["kt_num_gpu_experts"]) == (recipe.method, recipe.offload.gpu_experts)
    assert found["context_length"] == recipe.context.length
    assert found["preferred_sampling_params"] == recipe.sampling.model_dump(exclude_none=True)
    assert found.get("kt_max_deferred_experts_per_token", 0) == recipe.offload.deferred


@pytest.mark.parametrize(("name", "said"), [
    ("unknown", "unrecognized arguments"), ("abbreviated", "unrecognized arguments"), ("choice", "invalid choice"),
])  # fmt: skip
def test_it_would_have_said_so(parsed: dict[str, Any], name: str, said: str) -> None:
    assert said in parsed[name]


def test_the_catalogue_is_that_of_the_installed_package(stack_python: Path) -> None:
    committed = Path(catalogue.__file__).with_name("sglang_kt_flags.json").read_text()
    do = "run PYTHON scripts/catalogue > ktfleet/plan/sglang_kt_flags.json"
    assert committed == run(stack_python, "scripts/catalogue"), do
