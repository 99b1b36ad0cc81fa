"""Verdicts on the running server's overlay: what was asked for is what its processes really do."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ktfleet.measure.overlay_record import Status
from ktfleet.plan.overlay import Overlay, overlay
from ktfleet.recipes import Recipe
from ktfleet.verdict import Result, Verdict

OLDEST_S = 60.0
"""Age of a status that still counts: a running server writes one every 2 s, also while it computes."""

SHOWN = ("overlay", "effective clamp", "effective top-k")
"""What a run tells also when it is good."""

_RESTART = "restart the server as deploy.py starts it; read its log for lines with `ktfleet overlay`"


def judge(
    recipe: Recipe, status: Status | None, *, pids: Collection[int] | None, now: float, gap: str = ""
) -> tuple[Verdict, ...]:
    """One verdict a thing. status None: there is none that can be read, for the reason `gap`. pids: the server's
    processes now; None: not known. now: the host's clock, unix time.
    """
    wanted = overlay(recipe)
    if wanted is None:
        why = "the recipe needs nothing that the server does not do by itself"
        return (Verdict("overlay", "skipped", "not looked at", "nothing", why),)
    fresh = _fresh(status, pids, now, gap)
    if not fresh.good or status is None:
        return (fresh,)
    return (fresh, _version(wanted, status), _layers(recipe, status), *_clamp(recipe, status), *_top_k(recipe, status))


def _fresh(status: Status | None, pids: Collection[int] | None, now: float, gap: str) -> Verdict:
    key, wanted = "overlay", "the running server's own status"
    if status is None:
        return Verdict(key, "inconclusive", "nothing", wanted, gap or "its status could not be read")
    if pids is None:
        return Verdict(key, "inconclusive", f"process {status.pid}", wanted, "the server's processes are not known")
    if status.pid not in pids:
        why = "the server that wrote it is gone: a new one may still be loading"
        return Verdict(key, "inconclusive", f"process {status.pid}", wanted, why)
    age = now - status.written
    if not -OLDEST_S <= age <= OLDEST_S:
        return Verdict(key, "inconclusive", f"one of {age:.0f} s ago", wanted, "what it says may be over")
    seen = f"{status.active} (process {status.pid}, {max(age, 0):.0f} s ago)"
    return Verdict(key, "pass", seen, wanted, "what is asked for may not run")


def _version(wanted: Overlay, status: Status) -> Verdict:
    why = "another version may do something else under the same settings"
    result: Result = "pass" if status.folder == wanted.folder else "fail"
    return Verdict("overlay version", result, status.folder, wanted.folder, why, _RESTART)


def _layers(recipe: Recipe, status: Status) -> Verdict:
    seen, wanted = set(status.layers), set(range(recipe.experts.layers))
    why = "a layer without the hook computes what the recipe does not say"
    if seen == wanted:
        return Verdict("overlay layers", "pass", f"all {len(wanted)}", f"all {len(wanted)}", why)
    missing = ", ".join(map(str, sorted(wanted - seen))) or "none"
    told = f"{len(seen & wanted)}, without {missing}" if wanted - seen else f"{len(seen)}"
    return Verdict("overlay layers", "fail", told, f"all {len(wanted)}", why, _RESTART)


def _clamp(recipe: Recipe, status: Status) -> Iterator[Verdict]:
    """Only where the overlay has to put it back."""
    limit = recipe.experts.swiglu_limit
    if not (recipe.clamps and recipe.offload.clamp) or limit is None:
        return
    why = "without the model's own limit a layer answers wrongly, and no error tells"
    wanted = f"{limit:g} in all {recipe.experts.layers} layers"
    right = [layer for layer in range(recipe.experts.layers) if status.clamped.get(layer) == limit]
    others = sorted({f"{value:g}" for value in status.clamped.values() if value != limit})
    if len(right) == recipe.experts.layers and not others:
        yield Verdict("effective clamp", "pass", wanted, wanted, why)
        return
    seen = f"{limit:g} in {len(right)} layers" + (f", {' and '.join(others)} in others" if others else "")
    yield Verdict("effective clamp", "fail", seen, wanted, why, _RESTART)


def _top_k(recipe: Recipe, status: Status) -> Iterator[Verdict]:
    """What decoded tokens really got: experts computed, of those that the router picked."""
    adaptive, width = recipe.offload.adaptive, recipe.experts.per_token
    if recipe.top_k == width and adaptive is None:
        return
    least = adaptive.least if adaptive else recipe.top_k
    wanted = f"{recipe.top_k} of {width}" if least == recipe.top_k else f"{least} to {recipe.top_k} of {width}"
    wanted = f"{wanted} in each layer"
    why = "speed and answers of a recipe are those of its top-k"
    # A token of padding has fewer experts; it then has fewer computed, too.
    means = {layer: width * kept / there for layer, (there, kept) in status.slots.items() if there}
    idle = set(range(recipe.experts.layers)) - set(means)
    if idle:
        reason = f"no token was decoded in {len(idle)} layers since the start"
        yield Verdict("effective top-k", "inconclusive", "nothing", wanted, f"{reason}: ask for an answer first")
        return
    low, high = min(means.values()), max(means.values())
    seen = f"{low:.3g}" if high - low < 0.005 else f"{low:.3g} to {high:.3g}"
    right = least <= low and high <= recipe.top_k
    yield Verdict("effective top-k", "pass" if right else "fail", f"{seen} of {width}", wanted, why, _RESTART)
