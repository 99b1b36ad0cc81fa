"""Real worker pools of kt-kernel with experts in memory, held until the standard input ends; what /proc says of them.

`PYTHON -m tests.pools FOLDER '{"workers": [1], "others": [1]}'` with a Python that the wheel in FOLDER is made for.
`python -m tests.pools --record PYTHON FOLDER`: write the captures in tests/fixtures/placement again, on this machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ktfleet.measure.expert_layer import Layer, Pools, Shape, load, pin_others, threads

ROOT = Path(__file__).parents[1]
FIXTURES = Path(__file__).parent / "fixtures" / "placement"
SHAPE = Shape(experts=512, top_k=6, hidden=512, intermediate=256)
SHARD = SHAPE.experts * (3 * SHAPE.hidden * SHAPE.intermediate // 2)
"""Bytes of the weights without scales, over all pools: what at least has to be in memory."""
CGROUP = "sys/fs/cgroup/system.slice/ktfleet-server.service/cgroup.procs"
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

CASES: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "planned": ({"workers": [1], "others": [1]}, HUGE),
    "small-pages": ({"workers": [1], "others": [1]}, {}),
    "others-anywhere": ({"workers": [1], "others": [0, 1]}, HUGE),
    "main-on-worker": ({"workers": [1], "others": [1], "main": [0]}, HUGE),
    "too-many-workers": ({"workers": [3], "others": [0, 1]}, HUGE),
    "no-workers": ({"workers": [], "others": [1]}, {}),
}
"""Arrangements on a machine with two CPUs without hyperthreads -> how, and the variables that go with it.

distributor-unpinned.json beside them cannot be ordered: in one of 40 starts of `others-anywhere` kt-kernel itself left
its distributing worker unpinned, before they got the variables of `expert_layer.BINDING`.
"""


@contextmanager
def held(python: Path, folder: Path, how: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[int]:
    """A process with these pools, by its id."""
    command = [python, "-m", "tests.pools", folder, json.dumps(how)]
    surroundings = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=surroundings
    )
    assert process.stdin
    assert process.stdout
    try:
        for line in process.stdout:
            if line.startswith("ready"):
                break
        yield process.pid
    finally:
        process.stdin.close()
        process.stdout.read()
        process.wait()


def capture(pid: int, root: Path = Path("/")) -> dict[str, str]:
    """What the measurement reads of a process: path -> text."""
    folder = root / f"proc/{pid}"
    paths = [folder / name for name in ("comm", "numa_maps", "smaps_rollup")]
    paths += [task / name for task in (folder / "task").iterdir() for name in ("comm", "status", "stat")]
    files = {str(path.relative_to(root)): path.read_text() for path in [*paths, root / "proc/interrupts"]}
    # Where somebody's libraries lie is nobody's business.
    maps = f"proc/{pid}/numa_maps"
    files[maps] = re.sub(r"file=/(?!dev/|anon_hugepage)\S*/", "file=/usr/lib/", files[maps])
    return {CGROUP: f"{pid}\n", **files}


def write(files: Mapping[str, str], root: Path) -> Path:
    """A captured tree as files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def hold(folder: Path, how: Mapping[str, Any]) -> None:
    """Pools, experts, a few tokens; then wait."""
    extension, kept = load(folder, how.get("variant", "avx2")), []
    if how["workers"]:
        layer = Layer(extension, Pools(extension, how["workers"]), "MXFP4", SHAPE)
        kept.append(layer)
        pin_others(how["others"])
        layer.microseconds(0, 3)
    pin_others(how["others"])
    if "main" in how:
        os.sched_setaffinity(os.getpid(), how["main"])
    print("\nready", threads(), flush=True)
    sys.stdin.read()


def record(python: Path, folder: Path) -> None:
    """The captures of all cases."""
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, (how, variables) in CASES.items():
        with held(python, folder, how, variables) as pid:
            (FIXTURES / f"{name}.json").write_text(json.dumps(capture(pid), indent=0) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        record(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        hold(Path(sys.argv[1]), json.loads(sys.argv[2]))
