"""The expert kernel's measurement and a trial of the placement, on the locked extension and this CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ktfleet.judge.experts import NEAR
from ktfleet.measure import bundle
from ktfleet.measure.experts_record import Record
from ktfleet.measure.trial_record import Record as Trial

pytestmark = pytest.mark.stack

SHAPE = {"method": "MXFP4", "experts": 16, "top_k": 4, "hidden": 1024, "intermediate": 512, "bytes": 884_736}


def run(python: Path, folder: Path, name: str, order: dict[str, Any]) -> dict[str, Any]:
    program = folder / "measure.pyz"
    program.write_bytes(bundle.zipped())
    done = subprocess.run([python, "-I", program, name, json.dumps(order)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_layer_is_right_and_timed(stack_python: Path, tmp_path: Path) -> None:
    order = {**SHAPE, "nodes": {"0": [0]}, "others": [os.cpu_count() - 1], "limit": 1.0, "server": "/nowhere"}  # type: ignore[operator]
    record = Record.model_validate(run(stack_python, tmp_path, "experts", order))
    assert record.why == ""
    assert record.distance is not None
    assert record.distance <= NEAR
    assert record.finite
    assert (record.workers, len(record.rounds_us)) == ({"numa_0_m_0": (0,)}, 24)


def test_a_kernel_that_is_not_there_is_told(stack_python: Path, tmp_path: Path) -> None:
    order = {**SHAPE, "method": "AMXINT4", "variant": "avx2", "nodes": {"0": [0]}, "others": [], "server": "/nowhere"}
    assert run(stack_python, tmp_path, "experts", order)["why"].startswith(
        "ValueError: avx2 of kt-kernel has no kernel"
    )


def test_arms_are_timed_in_turn(stack_python: Path, tmp_path: Path) -> None:
    arms = [{"name": "plan", "workers": [1], "others": [1]}, {"name": "too many", "workers": [64], "others": [0, 1]}]
    found = run(stack_python, tmp_path, "trial", {**SHAPE, "arms": arms, "rounds": 3, "seconds": 0.01})
    plan, many = Trial.model_validate(found).arms
    assert (plan.times_slower.median, plan.unpinned) == (1.0, ())
    assert many.unpinned
    assert len(many.rounds_us) == 3


def test_fewer_experts_are_timed_in_turn_too(stack_python: Path, tmp_path: Path) -> None:
    """How much less time they take, bench/overlay.py tells."""
    arms = [{"name": str(kept), "workers": [1], "others": [1], "kept": kept} for kept in (4, 1)]
    record = Trial.model_validate(run(stack_python, tmp_path, "trial", {**SHAPE, "arms": arms, "rounds": 3}))
    assert (record.why, record.finite) == ("", True)
    for arm in record.arms:
        assert arm.gb_s == pytest.approx(int(arm.name) * 884.736 / arm.median_us, abs=0.01)
