"""What the server's processes load of ktfleet, and what they are told, from the recipe alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ktfleet.plan.account import HOME
from ktfleet.plan.places import OVERLAYS, SERVER_STATUS
from ktfleet.recipes import Recipe

PACKAGE, VARIABLE = "ktfleet.runtime", "KTFLEET_OVERLAY"
"""The package that sglang imports, and the variable with what it is asked for, as JSON. (ktfleet/runtime/settings.py)
Without the package the server does not start: a recipe that needs it is never served without."""

COUNTS = f"{HOME}/routing-counts.pt"
"""Where routing counts go: what `offload.placement_file` can name afterwards."""

_NEEDED = ("problem.py",)
"""What the package imports from outside it."""

_NAME_LENGTH = 12


@dataclass(frozen=True)
class Overlay:
    """folder: what Python's path has to name; it changes with the content. asked: JSON."""

    folder: str
    asked: str

    @property
    def environment(self) -> dict[str, str]:
        """What the server gets."""
        return {"SGLANG_EXTERNAL_MODEL_PACKAGE": PACKAGE, VARIABLE: self.asked, "PYTHONPATH": self.folder}


def overlay(recipe: Recipe) -> Overlay | None:
    """None: the recipe asks for nothing that the server does not do by itself."""
    offload, experts = recipe.offload, recipe.experts
    clamp = experts.swiglu_limit if recipe.clamps and offload.clamp else None
    culls = recipe.top_k < experts.per_token or offload.adaptive is not None
    if clamp is None and not culls and not offload.count_routing:
        return None
    asked = {
        "method": recipe.method,
        "layers": experts.layers,
        "experts": experts.count,
        "per_token": experts.per_token,
        "clamp": clamp,
        "top_k": recipe.top_k,
        "least": offload.adaptive.least if offload.adaptive else None,
        "share": offload.adaptive.share if offload.adaptive else None,
        "counts": COUNTS if offload.count_routing else None,
        "status": SERVER_STATUS,
    }
    return Overlay(folder(), json.dumps({key: value for key, value in asked.items() if value is not None}))


@cache
def sources() -> dict[str, str]:
    """Name below the folder -> text. Nothing of them depends on a host."""
    package = files(PACKAGE)
    inside = {f"ktfleet/runtime/{path.name}": path for path in package.iterdir() if path.name.endswith(".py")}
    beside = {f"ktfleet/{name}": files("ktfleet").joinpath(name) for name in _NEEDED}
    texts = {name: path.read_text("utf-8") for name, path in sorted({**inside, **beside}.items())}
    # Of its own: ktfleet's version is not the overlay's.
    return {"ktfleet/__init__.py": '"""The part of ktfleet that the server loads."""\n', **texts}


@cache
def folder() -> str:
    """Its name stands for its content: another overlay is another environment of the server, which restarts it."""
    content = json.dumps(sorted(sources().items())).encode()
    return f"{OVERLAYS}/{hashlib.sha256(content).hexdigest()[:_NAME_LENGTH]}"


def paths() -> tuple[str, ...]:
    """Every file of it on a host, for the probe."""
    return tuple(f"{folder()}/{name}" for name in sources())
