"""Why a recipe cannot have its overlay, judged before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.plan.overlay.wanted import overlay
from ktfleet.problem import Problem
from ktfleet.recipes import Recipe

METHODS = ("AMXINT4", "MXFP4")
"""kt-kernel's methods whose kernels the overlay's self-test knows (ktfleet/runtime/settings.py)."""


def problems(recipe: Recipe) -> Iterator[Problem]:
    """The server would not start."""
    if overlay(recipe) is not None and recipe.method not in METHODS:
        what, wanted = f"{recipe.name}: the overlay for clamp, top_k or counts", f"one of {', '.join(METHODS)}"
        do = "change the method, or remove offload.top_k, offload.adaptive and offload.count_routing"
        yield Problem(what, f"method {recipe.method}", wanted, do)
