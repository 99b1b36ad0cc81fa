"""How long the probe takes for the workstation's 80 CPUs: python -m bench.probe

Prints the whole process (interpreter start, compile, read, print), beside an interpreter that does nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ktfleet.host import bundle
from ktfleet.pyinfra_api.facts import probe_arguments
from tests.trees import write_tree

RUNS = 20


def milliseconds(command: Sequence[str]) -> list[float]:
    """The wall time of each run."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append((time.perf_counter() - start) * 1000)
    return times


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        tree = write_tree(Path(folder))
        source = bundle.source()
        commands = {
            "probe, 80 CPUs": [sys.executable, "-I", "-c", source, "--root", str(tree), *probe_arguments()],
            "probe, this machine": [sys.executable, "-I", "-c", source, *probe_arguments()],
            "bare interpreter": [sys.executable, "-I", "-c", "pass"],
        }
        for name, command in commands.items():
            times = milliseconds(command)
            print(f"{name}: best {min(times):.0f} ms, median {statistics.median(times):.0f} ms of {RUNS} runs")


if __name__ == "__main__":
    main()
