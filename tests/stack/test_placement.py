"""The placement proof beside real worker pools that run now."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ktfleet.judge.placement import judge
from ktfleet.measure.placement import Order, measure
from ktfleet.measure.placement_record import Record
from tests.pools import CASES, held
from tests.unit.judge.test_placement import SMALL

pytestmark = pytest.mark.stack


@pytest.fixture(scope="session")
def folder(stack_python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.check_output([stack_python, "-c", code], text=True).strip())


@pytest.mark.skipif(os.cpu_count() != 2, reason="the arrangements are those of a machine with two CPUs")
@pytest.mark.parametrize(("name", "bad"), [
    ("planned", []),
    ("others-anywhere", ["thread python"]),
    ("main-on-worker", ["thread python"]),
    ("too-many-workers", ["workers of node 0", "worker numa_0_t_2", "thread python"]),
])  # fmt: skip
def test_running_pools_are_judged_as_their_captures(
    name: str, bad: list[str], stack_python: Path, folder: Path, tmp_path: Path
) -> None:
    how, variables = CASES[name]
    with held(stack_python, folder, how, variables) as pid:
        (tmp_path / "cgroup.procs").write_text(f"{pid}\n")
        record = Record.model_validate(measure(Order(server=str(tmp_path))))
    # Whether pages become huge is this machine's setting.
    assert [v.key for v in judge(SMALL, record) if not v.good and v.key != "experts' huge pages"] == bad
