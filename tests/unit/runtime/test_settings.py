"""What the overlay is asked for: what the plan writes is read, and every mistake is one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import recipes
from ktfleet.plan.overlay import overlay
from ktfleet.plan.overlay import refusals as plan_refusals
from ktfleet.plan.overlay.wanted import VARIABLE
from ktfleet.problem import Refused
from ktfleet.runtime import settings

GOOD = {"method": "AMXINT4", "layers": 43, "experts": 256, "per_token": 6, "top_k": 4, "status": "/run/x.json"}


def lines(given: object) -> list[str]:
    with pytest.raises(Refused) as caught:
        settings.read(given if isinstance(given, str | None) else json.dumps(given))
    return [str(problem) for problem in caught.value.problems]


def test_what_the_plan_writes_is_what_is_read() -> None:
    adaptive = {"offload": {"top_k": 4, "adaptive": {"least": 2, "share": 0.1}, "count_routing": True}}
    for name, override in (*((name, {}) for name in recipes.names()), ("dsv4-flash-amxint4", adaptive)):
        recipe = recipes.load(name, override)
        made = overlay(recipe)
        if made is None:
            continue
        found = settings.read(made.asked)
        assert (found.method, found.top_k, found.per_token) == (recipe.method, recipe.top_k, 6)
        assert (found.layers, found.experts) == (43, 256)
        assert found.clamp == (10.0 if recipe.method == "AMXINT4" else None)
        assert found.culls == (recipe.top_k < 6)
        assert (found.least, found.share) == ((2, 0.1) if override else (None, None))
        assert str(found).startswith(f"{recipe.method}, ")


def test_both_sides_agree_on_names() -> None:
    """The plan may not import the overlay."""
    assert (settings.VARIABLE, settings.METHODS) == (VARIABLE, plan_refusals.METHODS)


@pytest.mark.parametrize(("change", "line"), [
    ({"method": "AMXINT3"}, "method: seen 'AMXINT3', wanted one of AMXINT4, MXFP4"),
    ({"method": None}, "method: seen None, wanted one of"),
    ({"top_k": 0}, "top_k: seen 0, wanted a number of 1 or more"),
    ({"top_k": True}, "top_k: seen True, wanted a number of 1 or more"),
    ({"top_k": "4"}, "top_k: seen '4', wanted a number"),
    ({"top_k": 4.0}, "top_k: seen 4.0, wanted a number"),
    ({"top_k": 7}, "top_k: seen 7, wanted 6 at most"),
    ({"per_token": 300}, "per_token: seen 300, wanted 256 at most"),
    ({"clamp": 0}, "clamp: seen 0, wanted a number above 0"),
    ({"clamp": True}, "clamp: seen True, wanted a number above 0"),
    ({"least": 2}, "least: seen 2, wanted least and share together"),
    ({"share": 0.5}, "least: seen None, wanted least and share together"),
    ({"least": 5, "share": 0.5}, "least: seen 5, wanted 4 at most"),
    ({"least": 2, "share": 1}, "share: seen 1, wanted a number above 0 and below 1"),
    ({"status": "overlay.json"}, "status: seen 'overlay.json', wanted an absolute path"),
    ({"counts": "/tmp/counts"}, "counts: seen '/tmp/counts', wanted an absolute path that ends with .pt"),
    ({"topk": 4}, "topk: seen an unknown key, wanted one of method,"),
])  # fmt: skip
def test_each_mistake_is_one_line(change: dict[str, Any], line: str) -> None:
    (found,) = lines({**GOOD, **change})
    assert found.startswith(f"KTFLEET_OVERLAY: {line}")
    assert "\n" not in found


def test_all_mistakes_come_at_once() -> None:
    assert len(lines({**GOOD, "method": "x", "layers": 0, "extra": 1})) == 3
    assert len(lines({})) == 6
    assert len(lines({key: value for key, value in GOOD.items() if key != "status"})) == 1


@pytest.mark.parametrize("text", [None, "", "{", "4", "[]", "null", '"x"', "NaN", '{"a": 1}x'])
def test_what_is_no_object_is_one_line(text: str | None) -> None:
    (found,) = lines(text)
    assert found.startswith("KTFLEET_OVERLAY: seen ")


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from([*GOOD, "clamp", "least", "share", "counts", "other"]), VALUES))
def test_whatever_is_changed_is_read_or_refused(change: dict[str, Any]) -> None:
    text = json.dumps({**GOOD, **change})
    try:
        found = settings.read(text)
    except Refused:
        found = None
    if found is None:
        assert all(line.startswith("KTFLEET_OVERLAY: ") and "; " in line for line in lines(text))
    else:
        assert 1 <= (found.least or 1) <= found.top_k <= found.per_token <= found.experts
        assert found.clamp is None or found.clamp > 0
