"""Measurements of the machine that this runs on, without a controller."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from ktfleet.host import probe
from ktfleet.host.state import HostState
from ktfleet.measure import bundle
from ktfleet.measure.trial_record import Record
from ktfleet.plan import trial
from ktfleet.plan.request import request
from ktfleet.problem import Problem, Refused
from ktfleet.recipes import Recipe


def placement(recipe: Recipe, python: Path, rounds: int, *, ab: bool) -> Record:
    """One expert layer under several arrangements of the threads; `python` has kt-kernel. Raises Refused."""
    state = HostState.model_validate(probe.collect(root="/", **asdict(request())))
    if not trial.possible(state):
        do = "run it on the workstation"
        raise Refused((Problem("this machine cannot show it", "one core of a node", "two of each", do),))
    arms = trial.others(state) if ab else trial.losing(state)
    order = json.dumps(asdict(trial.order(recipe, arms, rounds)))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "measure.pyz"
        program.write_bytes(bundle.zipped())
        try:
            done = subprocess.run(
                [python, "-I", program, "trial", order], capture_output=True, text=True, errors="replace", check=False
            )
        except OSError as error:
            do = "install the stack with deploy.py, or name another one with --python"
            seen = (error.strerror or str(error)).lower()
            raise Refused((Problem(f"--python {python}", seen, "a Python with kt-kernel", do),)) from error
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), "")
    try:
        return Record.model_validate_json(line)
    except ValidationError as error:
        seen = (done.stderr or done.stdout).strip().rpartition("\n")[2][:200] or f"exit status {done.returncode}"
        do = "name another one with --python"
        raise Refused((Problem(f"--python {python}", seen, "the measurement's JSON", do),)) from error
