"""Workstations of each distribution, and plans for them."""

from __future__ import annotations

from typing import Any

from ktfleet import plan, recipes
from ktfleet.config import Gpu, Workstation
from ktfleet.host.state import OS, HostState, Nvidia
from ktfleet.plan import Plan
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
TOOLKITS = {("debian", "13"): "13.0", ("ubuntu", "26.04"): "13.0"}
CARD: dict[str, Any] = {"address": "0000:3b:00.0", "vendor": "10de", "device": "2b85"}


def host(name: str = "ubuntu", version: str = "24.04", packages: tuple[str, ...] = (), **update: Any) -> HostState:
    """A freshly installed host; `packages` as NAME or NAME=VERSION."""
    there = dict((*package.split("="), "1")[:2] for package in packages)
    state = workstation()
    held = state.packages.model_copy(update={"installed": there})
    return state.model_copy(update={"os": OS(id=name, version_id=version), "packages": held, **update})


def made(state: HostState, **gpu: Any) -> Plan:
    toolkit = TOOLKITS.get((state.os.id or "", state.os.version_id or ""), "12.9")
    return plan.make(state, Workstation(gpu=Gpu.model_validate({"toolkit": toolkit, **gpu})), RECIPE)


def nvidia(loaded: str | None = None, on_disk: str | None = None, license: str | None = None) -> Nvidia:
    return Nvidia(loaded=loaded, on_disk=on_disk, license=license)
