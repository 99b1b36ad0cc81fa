"""What a measurement of a host holds for: it is taken again when one of these is another."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any, Literal, get_args

from ktfleet.host.state import HostState
from ktfleet.plan import Plan
from ktfleet.plan.places import STACK
from ktfleet.plan.readback import unread_link

Circumstance = Literal["plan", "boot", "kernel", "driver", "stack", "weights", "recipe"]
ALL: tuple[Circumstance, ...] = get_args(Circumstance)

HOST: tuple[Circumstance, ...] = ("plan", "boot", "kernel")
"""For what the memory and the processors do by themselves."""

CARD: tuple[Circumstance, ...] = ("plan", "boot", "kernel", "driver")
"""For what the card does by itself."""

DRIVER_VERSION = "/sys/module/nvidia/version"

_NONE = "none"


def circumstances(plan: Plan, state: HostState) -> dict[Circumstance, str] | None:
    """Each of them as text, long ones as a digest. None: one cannot be told, so no measurement can be kept."""
    boot, kernel = state.kernel.boot_id, state.kernel.release
    if boot is None or kernel is None or DRIVER_VERSION in state.unreadable or unread_link(STACK, state):
        return None
    return {
        "plan": _digest(_decided(plan)),
        "boot": boot,
        "kernel": kernel,
        "driver": state.nvidia.loaded or _NONE,
        "stack": state.links.get(STACK) or _NONE,
        "weights": _digest(asdict(plan.weights)) if plan.weights else _NONE,
        "recipe": _digest([plan.recipe.model_dump(mode="json"), plan.launch.to_json()]),
    }


def _decided(plan: Plan) -> dict[str, Any]:
    """What the host is told to be, whatever it serves."""
    return {
        "settings": [(setting.key, setting.wanted) for setting in plan.settings],
        "workers": {str(node): list(cpus) for node, cpus in plan.cores.worker_cpus.items()},
        "others": list(plan.cores.other_cpus),
        "huge pages": [plan.memory.policy, plan.memory.hugepages_per_node],
        "gpu": plan.config.gpu.model_dump(mode="json") if plan.config.gpu else None,
    }


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
