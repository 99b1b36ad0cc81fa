"""How long the verification of the whole model takes: python -m bench.weights [FOLDER]

Writes the 132,096 tensors of two pools as sparse files (real headers and index, no data), in both layouts, and times
`ktfleet weights verify` as a whole process, with the most memory that it used. FOLDER: where to write (a .kt tree takes
132,096 inodes).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ktfleet import recipes
from ktfleet.plan.weights.wanted import layout
from ktfleet.weights.layout import Layout
from tests.weights import write_merged

POOLS = 2
RUNS = 3
PROGRAM = "import sys; from ktfleet.cli import main; sys.argv[0] = 'ktfleet'; main()"


def sparse_tree(folder: Path, wanted: Layout) -> Path:
    """A .kt tree of empty files that have the right sizes."""
    for layer in range(wanted.layers):
        for pool in range(wanted.pools):
            (folder / f"_layer_{layer}/_numa_{pool}").mkdir(parents=True)
        for part, path in wanted.filed(layer):
            with (folder / path).open("wb") as file:
                file.truncate(part.bytes)
    return folder


def measure(folder: Path) -> tuple[float, float]:
    """Seconds, and MB of memory, of one run."""
    command = [sys.executable, "-c", PROGRAM, "weights", "verify", str(folder), "--pools", str(POOLS)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the verification failed: seen exit {process.returncode}, wanted 0; run it by hand")
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6


def main() -> None:
    """Measure and print."""
    wanted = layout(recipes.load("dsv4-flash-amxint4"), POOLS)
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as name:
        folders = {
            "merged": write_merged(Path(name) / "merged", wanted, sparse=True),
            ".kt tree": sparse_tree(Path(name) / "kt", wanted),
        }
        for kind, folder in folders.items():
            runs = [measure(folder) for _ in range(RUNS)]
            seconds, megabytes = min(run[0] for run in runs), max(run[1] for run in runs)
            print(f"{kind}, {wanted.count} tensors: best {seconds:.1f} s of {RUNS} runs, most {megabytes:.0f} MB")


if __name__ == "__main__":
    main()
