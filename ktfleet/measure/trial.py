"""One expert layer, tried: where workers and other threads run, how many experts a token computes; all in one process.

The rounds of all arms are interleaved, so that what else happens on the machine happens to all of them alike. Only the
standard library and the kt-kernel wheel: it runs on the host, with the server's Python. Nothing is decided here.
"""

from __future__ import annotations

import random
import sysconfig
import time
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
RESAMPLES, CONFIDENCE = 2000, 0.95
QUIET_S = 0.15
"""Before an arm is timed: kt-kernel's idle workers spin for 50 ms before they sleep."""
WARM = 2


@dataclass(frozen=True)
class Order:
    """What to try.

    arms: each {"name", "workers" (of each node), "others" (CPUs of every other thread)}, and "kept", the
    experts of top_k that are computed, if not all; the first one is what the others are compared with. bytes: of one
    expert in memory. seconds: of an arm in a round. folder: where kt_kernel is, "": this Python's packages. variant: of
    the extension, "": what kt-kernel takes here. server: the cgroup of the server's unit, beside which nothing is
    tried. limit_s: of everything.
    """

    arms: Sequence[Mapping[str, Any]]
    method: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    bytes: int
    rounds: int = 12
    seconds: float = 0.25
    folder: str = ""
    variant: str = ""
    server: str = "/sys/fs/cgroup/system.slice/ktfleet-server.service"
    limit_s: float = 600.0


def measure(order: Order) -> dict[str, Any]:
    """Everything, or why not."""
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "why": "", "arms": []}
    if busy(order.server):
        return {**record, "why": "server running"}
    outcome = apart(lambda: _tried(order), order.limit_s)
    # A server that starts meanwhile makes it worthless.
    why = outcome.why or ("server running" if busy(order.server) else "")
    return {**record, **({} if why else outcome.value), "why": why, "said": outcome.warnings}


def _tried(order: Order) -> dict[str, Any]:
    extension = expert_layer.load(Path(order.folder or sysconfig.get_path("platlib")), order.variant)
    shape = Shape(order.experts, order.top_k, order.hidden, order.intermediate)
    layers: dict[tuple[int, ...], Layer] = {}
    for arm in order.arms:
        workers = tuple(arm["workers"])
        if workers not in layers:
            layers[workers] = Layer(extension, Pools(extension, workers), order.method, shape)
    took = _rounds(order, layers)
    first = next(iter(took.values()))
    arms = [_arm(order, arm, layers[tuple(arm["workers"])], took[arm["name"]], first) for arm in order.arms]
    some = next(iter(layers.values()))
    finite = expert_layer.finite(bytes(some.out.memory))
    return {"variant": extension.__cpu_variant__, "kernel": some.kernel, "finite": finite, "arms": arms}


def _rounds(order: Order, layers: Mapping[tuple[int, ...], Layer]) -> dict[str, list[float]]:
    """Arm -> microseconds a call in each round. The arms' order is another one in each round."""
    dice = random.Random(order.rounds)
    took: dict[str, list[float]] = {arm["name"]: [] for arm in order.arms}
    for _ in range(order.rounds):
        for arm in dice.sample(list(order.arms), len(order.arms)):
            layer = layers[tuple(arm["workers"])]
            layer.keep(arm.get("kept", order.top_k))
            expert_layer.pin_others(arm["others"])
            time.sleep(QUIET_S)
            layer.microseconds(0, WARM)
            took[arm["name"]].append(layer.microseconds(order.seconds))
    return took


def _arm(
    order: Order, arm: Mapping[str, Any], layer: Layer, took: Sequence[float], first: Sequence[float]
) -> dict[str, Any]:
    seen = expert_layer.workers_of(layer.pools)
    middle = median(took)
    return {
        "name": arm["name"],
        "workers": list(layer.pools.workers),
        "unpinned": sorted(name for name, cpus in seen.items() if len(cpus) > 1),
        "rounds_us": [round(each, 1) for each in took],
        "median_us": round(middle, 1),
        "gb_s": round(arm.get("kept", order.top_k) * order.bytes / middle / 1e3, 2),
        "times_slower": ratio([one / base for one, base in zip(took, first, strict=True)]),
    }


def ratio(ratios: Sequence[float]) -> dict[str, float]:
    """The median of rounds' ratios with its 95 % interval: the percentile bootstrap of the median (Efron 1979)."""
    dice = random.Random(len(ratios))
    medians = sorted(median(dice.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    outside = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return {
        "median": round(median(ratios), 3),
        "low": round(medians[outside], 3),
        "high": round(medians[-1 - outside], 3),
    }
