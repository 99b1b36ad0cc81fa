"""The placement proof beside real worker pools that run now."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ktfleet.judge.placement import judge
from ktfleet.measure.placement import Order, measure
from ktfleet.measure.placement_record import Record
from tests.pools import CASES, ROOT, held
from tests.unit.judge.test_placement import SMALL

pytestmark = pytest.mark.stack


@pytest.fixture(scope="session")
def folder(stack_python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('platlib'))"
    return Path(subprocess.check_output([stack_python, "-c", code], text=True).strip())


START = """
import sys
from pathlib import Path
from ktfleet.measure import expert_layer
{before}
expert_layer.Pools(expert_layer.load(Path(sys.argv[1])), [1])
"""
CALL = re.compile(r"(\d+) +sched_setaffinity\((\d+), ")


@pytest.mark.parametrize(("before", "moves"), [("", False), ("expert_layer.BINDING.clear()", True)])
def test_a_first_worker_moves_nowhere_after_it_is_bound(
    before: str, moves: bool, stack_python: Path, folder: Path, tmp_path: Path
) -> None:
    """Somebody else binds it, once. If it goes over the CPUs by itself, it undoes that at times."""
    trace = tmp_path / "trace"
    if subprocess.run(["strace", "-o", trace, "true"], check=False).returncode:
        pytest.skip("this machine lets no program be traced")
    command = ["strace", "-f", "-o", trace, "-e", "trace=sched_setaffinity", stack_python, "-c"]
    subprocess.run([*command, START.format(before=before), folder], check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    calls = [(match[1], match[2]) for match in map(CALL.match, trace.read_text().splitlines()) if match]
    (bound,) = {thread for _, thread in calls if thread != "0"}
    assert ((bound, "0") in calls) == moves


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
