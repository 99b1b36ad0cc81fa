"""The generated pages on recipes and guard rails: docs/recipes.md, docs/guard-rails.md."""

from __future__ import annotations

from collections.abc import Iterable

from ktfleet import recipes
from ktfleet.plan.guard_rails import TABLE, Rail
from ktfleet.recipes import GIB, Recipe

_RECIPES = """# Recipes

Generated from `ktfleet/recipes/` by `ktfleet recipes --markdown`: change them there. A recipe is named in the inventory
(`recipe = "{first}"`) or by the path of a TOML file of your own, which may inherit one of these (`inherits =
"{first}"`) and say only what differs. One host or group changes single keys with `override`, as in
`override = {{"context": {{"length": 32768}}}}`. An unknown or mistyped key is refused by name.

Published figures are other people's; ktfleet has not measured a recipe on such a machine yet. What is under "estimates"
is a choice or a guess that nobody has measured, with what it rests on.
"""

_RAILS = """# Guard rails

Generated from `ktfleet/plan/guard_rails.py` by `ktfleet guard-rails --markdown`: change them there. A configuration
that crosses one is refused before anything is touched. Those of the second list can be accepted with a reason, in the
inventory (`accept = {"deferred": "why"}`) or in a recipe; that is then told by every plan, run and report.
"""


def recipes_markdown() -> str:
    """docs/recipes.md, whole."""
    names = recipes.names()
    return "\n".join((_RECIPES.format(first=names[0]), *(_recipe(recipes.load(name)) for name in names)))


def _recipe(recipe: Recipe) -> str:
    lines = [f"## {recipe.name}\n", " ".join(recipe.accuracy.split()).join(("**Accuracy:** ", "\n"))]
    lines += ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in _facts(recipe)), ""]
    lines += [f"**Published:** {_published(recipe)}"]
    if recipe.estimates:
        lines.append("\n**Estimates:**\n")
    lines += [f"- `{key}` = {_shown(recipe.at(key))}: {reason}." for key, reason in sorted(recipe.estimates.items())]
    lines += [f"\n**Accepts** `{setting}`: {reason}." for setting, reason in recipe.accept.items()]
    return "\n".join(lines) + "\n"


def _facts(recipe: Recipe) -> Iterable[tuple[str, str]]:
    experts, offload, context = recipe.experts, recipe.offload, recipe.context
    yield "model", recipe.model
    if recipe.inherits:
        yield "inherits", f"`{recipe.inherits}`"
    yield "method", f"{recipe.method}; the CPU needs {', '.join(recipe.needed_flags)}"
    yield "experts", f"{experts.layers} layers of {experts.count}, {experts.hidden} x {experts.intermediate}"
    yield "a token", f"{recipe.top_k} of the {experts.per_token} that the router picks{_read(recipe)}"
    yield (
        "memory",
        f"{experts.total_bytes / GIB:.1f} GiB of experts; {recipe.reserve_bytes / GIB:.0f} GiB a node beside",
    )
    yield "workers", f"{offload.cpuinfer or 'one a physical core'}; {offload.pools or 'one pool a NUMA node'}"
    yield "on the GPU", f"{offload.gpu_experts} experts of each layer"
    yield "deferred", f"{offload.deferred} experts a token"
    if experts.swiglu_limit is not None:
        put_back = ", put back by ktfleet's overlay" if recipe.clamps and offload.clamp else ""
        yield "clamp", f"{experts.swiglu_limit:g}{put_back}" if offload.clamp else "off"
    if recipe.speculation:
        yield "speculation", f"{recipe.speculation.algorithm}, {recipe.speculation.draft_tokens} drafted tokens"
    yield "context", f"{context.length} tokens a request, {context.total_tokens} in all"
    sampling = recipe.sampling.model_dump(exclude_none=True)
    yield "sampling", ", ".join(f"{name} {value:g}" for name, value in sampling.items()) or "the checkpoint's own"


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read(recipe: Recipe) -> str:
    size = recipe.top_k * recipe.experts.layers * recipe.experts.bytes
    return f": {size / 1e9:.2f} GB of weights are read" if not recipe.offload.gpu_experts else ""


def _published(recipe: Recipe) -> str:
    told = [f"{each.tok_s:g} tok/s on {each.hardware}, {each.date} ({each.source})" for each in recipe.published]
    return "; ".join(told) + "." if told else "nothing on such a machine."


def guard_rails_markdown() -> str:
    """docs/guard-rails.md, whole."""
    refused, accepted = [rail for rail in TABLE if rail.refused], [rail for rail in TABLE if not rail.refused]
    lists = (("Never crossed", refused), ("Crossed with a reason", accepted))
    return "\n".join((_RAILS, *(f"## {title}\n\n" + "\n".join(map(_rail, rails)) for title, rails in lists)))


def _rail(rail: Rail) -> str:
    name = f"`{rail.setting}`: " if not rail.refused else ""
    heading = f"### {name}{rail.what}\n"
    return f"{heading}\n**Why:** {rail.why}\n\n**Effect:** {rail.effect}.\n\n**Source:** {rail.source}.\n"
