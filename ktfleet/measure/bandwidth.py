"""Memory bandwidth of a host: every node's CPUs at every node's memory, threads a node swept, all nodes at once.

It decides nothing and never raises: what could not be had is told. Beside a running server it measures nothing: both
would be wrong. It compiles bandwidth.c with the host's own compiler. Only the standard library: it runs on the host.
"""

from __future__ import annotations

import json
import pkgutil
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ktfleet.measure.unit import busy

SCHEMA = 1
BUILD_S, RUN_S = 60.0, 30.0


@dataclass(frozen=True)
class Order:
    """What to measure.

    nodes: node -> the CPUs to run on, one of each core. hugepages: "thp", "hugetlb" or "off", as deployed.
    mib: memory of each node, far beyond the caches. seconds: of each kernel and configuration. server: the cgroup of
    the server's unit.
    """

    nodes: Mapping[str, Sequence[int]]
    hugepages: str = "thp"
    mib: int = 1024
    seconds: float = 0.25
    server: str = "/sys/fs/cgroup/system.slice/ktfleet-server.service"


def measure(order: Order) -> dict[str, Any]:
    """Everything, or why not."""
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "why": "", "runs": []}
    if busy(order.server):
        return {**record, "why": "server running"}
    if not order.nodes or not all(order.nodes.values()):
        return {**record, "why": "a node without CPUs"}
    with tempfile.TemporaryDirectory(prefix="ktfleet-bandwidth-") as folder:
        program, why = _build(Path(folder))
        if program is None:
            return {**record, "why": why}
        for run in _runs(order):
            # A server that starts meanwhile makes the rest worthless.
            if busy(order.server):
                return {**record, "why": "server running", "runs": []}
            record["runs"].append({**run, **_run(program, order, run)})
    return record


def _build(folder: Path) -> tuple[Path | None, str]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None, "no C compiler on this host: install gcc"
    source, program = folder / "bandwidth.c", folder / "bandwidth"
    source.write_bytes(pkgutil.get_data("ktfleet.measure", "bandwidth.c") or b"")
    command = [compiler, "-O3", "-march=native", "-pthread", "-o", str(program), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"the compiler did not end well: {' '.join(str(error).split())[:200]}"
    if done.returncode:
        return None, f"it does not compile: {' '.join(done.stderr.split())[:200]}"
    return program, ""


def _runs(order: Order) -> list[dict[str, Any]]:
    """What is run: the matrix, the sweep, all at once. cpus: memory node -> CPUs."""
    nodes = {int(node): list(cpus) for node, cpus in order.nodes.items()}
    matrix = [
        {"kind": "matrix", "cpu_node": node, "memory_node": other, "cpus": {other: cpus}}
        for node, cpus in nodes.items()
        for other in nodes
    ]
    sweep = [
        {"kind": "sweep", "cpu_node": node, "memory_node": node, "cpus": {node: cpus[:count]}}
        for node, cpus in nodes.items()
        for count in _counts(len(cpus))
    ]
    together = {"kind": "together", "cpu_node": None, "memory_node": None, "cpus": nodes}
    return [*matrix, *sweep, *([together] if len(nodes) > 1 else [])]


def _counts(most: int) -> list[int]:
    """1, 2, 4... threads, and three quarters: whether the last ones still bring something. All is in the matrix."""
    powers = [1 << bit for bit in range(most.bit_length()) if 1 << bit < most]
    return sorted({*powers, *([most * 3 // 4] if most >= 4 else [])})


def _run(program: Path, order: Order, run: dict[str, Any]) -> dict[str, Any]:
    groups = [f"{node}:{','.join(map(str, cpus))}" for node, cpus in run["cpus"].items()]
    command = [str(program), order.hugepages, str(order.mib), str(order.seconds), *groups]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
        said: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"it ran for more than {RUN_S:g} s"}
    except (OSError, ValueError) as error:
        return {"error": " ".join(str(error).split())[:200]}
    return said
