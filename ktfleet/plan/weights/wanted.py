"""What the weights of a host are to be, from its recipe and its pools."""

from __future__ import annotations

from ktfleet.problem import Problem, Refused
from ktfleet.recipes import Recipe
from ktfleet.weights.layout import Layout

CONVERTED = "AMXINT4"
"""The method whose weights are converted; every other one reads the checkpoint itself."""


def layout(recipe: Recipe, pools: int) -> Layout:
    """The recipe's experts as converted for so many pools. Raises Refused when they cannot be."""
    experts = recipe.experts
    if recipe.method != CONVERTED:
        do = "verify another recipe's weights, or choose one with that method"
        raise Refused((Problem("the recipe has no converted weights", recipe.method, CONVERTED, do),))
    if pools < 1 or experts.intermediate % (2 * pools):
        wanted = f"a divisor of {experts.intermediate // 2}, half the experts' intermediate size"
        raise Refused((Problem("the number of pools", str(pools), wanted, "pass as many as there are NUMA nodes"),))
    return Layout(experts.layers, experts.count, experts.hidden, experts.intermediate, pools)
