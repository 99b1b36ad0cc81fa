"""The CPUs' share of a token, before any weights are there: one expert layer of the real shape on kt-kernel itself.

Random weights, far more than the caches hold, in pools as they are planned; and a small layer of the same shape whose
result is compared with numpy. It decides nothing and never raises. Beside a running server it measures nothing: both
would be wrong. It runs on the host, with the server's Python.
"""

from __future__ import annotations

import resource
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ktfleet.measure import expert_layer
from ktfleet.measure.apart import apart
from ktfleet.measure.expert_layer import Layer, Pools, Shape
from ktfleet.measure.unit import busy

SCHEMA = 1
EXACT = 8
"""Experts of the layer whose result is compared."""
ROUNDS, ROUND_S, WARM_S = 24, 0.4, 1.0
LEAST_AVAILABLE = 8_000_000_000
"""Bytes that the measurement may take."""


@dataclass(frozen=True)
class Order:
    """What to measure.

    nodes: node -> the CPUs of its workers. others: those of every other thread. bytes: of one expert in memory.
    limit: the model's SwiGLU limit, 0: none. folder: where kt_kernel is, "": this Python's packages. variant: of the
    extension, "": what kt-kernel takes here. server: the cgroup of the server's unit.
    """

    nodes: Mapping[str, Sequence[int]]
    others: Sequence[int]
    method: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    bytes: int
    limit: float = 0.0
    folder: str = ""
    variant: str = ""
    server: str = "/sys/fs/cgroup/system.slice/ktfleet-server.service"
    limit_s: float = 120.0


def measure(order: Order) -> dict[str, Any]:
    """Everything, or why not."""
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "why": ""}
    available = _available()
    if busy(order.server):
        return {**record, "why": "server running"}
    if not order.nodes or not all(order.nodes.values()):
        return {**record, "why": "a node without workers"}
    if available is not None and available < LEAST_AVAILABLE:
        return {**record, "why": f"too little memory is available: {available / 1e9:.1f} GB of 8"}
    outcome = apart(lambda: _measured(order), order.limit_s)
    # A server that starts meanwhile makes it worthless.
    why = outcome.why or ("server running" if busy(order.server) else "")
    return {**record, **({} if why else outcome.value), "why": why, "said": outcome.warnings}


def _measured(order: Order) -> dict[str, Any]:
    extension = expert_layer.load(Path(order.folder or sysconfig.get_path("platlib")), order.variant)
    pools = Pools(extension, [len(cpus) for _, cpus in sorted(order.nodes.items(), key=lambda each: int(each[0]))])
    if order.others:
        expert_layer.pin_others(order.others)
    size = (order.top_k, order.hidden, order.intermediate, order.limit)
    distance, why = _distance(Layer(extension, pools, order.method, Shape(max(EXACT, order.top_k), *size), exact=True))
    layer = Layer(extension, pools, order.method, Shape(order.experts, *size))
    layer.microseconds(WARM_S)
    took = [layer.microseconds(ROUND_S) for _ in range(ROUNDS)]
    return {
        "variant": extension.__cpu_variant__,
        "kernel": layer.kernel,
        "distance": distance,
        "distance_why": why,
        "finite": expert_layer.finite(layer.out.memory[:]),
        "workers": expert_layer.workers_of(pools),
        "rounds_us": [round(each, 1) for each in took],
        "gb_s": round(order.top_k * order.bytes / median(took) / 1e3, 2),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _distance(layer: Layer) -> tuple[float | None, str]:
    try:
        from ktfleet.measure.expert_reference import check
    except ImportError as error:
        return None, f"there is nothing to compare with: {error}"
    return check(layer), ""


def _available() -> int | None:
    """Bytes of memory."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
