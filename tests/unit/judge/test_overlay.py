"""Verdicts on what the running server's overlay tells."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import recipes
from ktfleet.judge.overlay import judge
from ktfleet.measure import overlay_record
from ktfleet.measure.overlay_record import Seen, Status
from ktfleet.plan.overlay import overlay
from ktfleet.runtime import settings
from ktfleet.runtime.status import SCHEMA

RECIPE = recipes.load("dsv4-flash-amxint4-top4")
NOW = 1_000_000.0


def told(recipe: recipes.Recipe = RECIPE, **change: Any) -> Status:
    """What a server says in which everything is as it should be."""
    made = overlay(recipe)
    assert made
    asked = settings.read(made.asked)
    layers = range(recipe.experts.layers)
    good = {
        "schema": SCHEMA, "pid": 77, "folder": made.folder, "active": str(asked), "settings": dataclasses.asdict(asked),
        "layers": list(layers), "clamped": {str(n): asked.clamp for n in layers if asked.clamp},
        "slots": {str(n): [600, 100 * recipe.top_k] for n in layers}, "whole_passes": 1, "written": NOW - 1,
    }  # fmt: skip
    return Status.model_validate({**good, **change})


def results(status: Status | None, recipe: recipes.Recipe = RECIPE, **known: Any) -> dict[str, str]:
    found = judge(recipe, status, **{"pids": {76, 77}, "now": NOW, **known})
    assert all(str(verdict) for verdict in found)
    return {verdict.key: verdict.result for verdict in found}


def seen(key: str, status: Status, recipe: recipes.Recipe = RECIPE) -> str:
    return next(v.seen for v in judge(recipe, status, pids={77}, now=NOW) if v.key == key)


def test_all_as_asked_for() -> None:
    assert set(results(told()).values()) == {"pass"}
    assert seen("effective top-k", told()) == "4 of 6"
    assert seen("effective clamp", told()) == "10 in all 43 layers"
    assert seen("overlay", told()) == "AMXINT4, clamp 10, top 4 of 6 experts of a decoded token (process 77, 1 s ago)"
    assert overlay_record.SCHEMA == SCHEMA


@pytest.mark.parametrize(("text", "why"), [
    (None, "none there"), ("", "what its file holds is none: ''"),
    ('{"schema": 99}', "it is of version 99, this ktfleet reads 1"),
    *((text, "is none") for text in ("{", "[]", "{}", "[" * 9999, '{"schema": 1}', '{"schema": "1"}')),
])  # fmt: skip
def test_a_file_that_cannot_be_read_has_its_reason(text: str | None, why: str) -> None:
    status, gap = Seen(text=text, why="none there", now=NOW).read()
    assert status is None
    assert why in gap


def test_a_file_that_can_be_read_is_the_status() -> None:
    text = json.dumps(told().model_dump(by_alias=True) | {"schema": SCHEMA, "new": 1})
    assert Seen(text=text, now=NOW).read() == (told(), "")


def test_a_recipe_that_needs_none_is_skipped() -> None:
    assert results(None, recipes.load("dsv4-flash-mxfp4")) == {"overlay": "skipped"}


def test_only_what_the_recipe_asks_for_is_judged() -> None:
    six, mxfp4 = recipes.load("dsv4-flash-amxint4"), recipes.load("dsv4-flash-mxfp4-top4")
    assert "effective top-k" not in results(told(six), six)
    assert "effective clamp" not in results(told(mxfp4), mxfp4)


@pytest.mark.parametrize(("status", "known"), [
    (None, {"gap": "no such file"}), (told(), {"pids": None}), (told(), {"pids": set()}),
    (told(pid=78), {}), (told(written=NOW - 61), {}), (told(written=NOW + 61), {}), (told(written=float("nan")), {}),
])  # fmt: skip
def test_what_is_not_the_running_server_s_is_inconclusive(status: Status | None, known: dict[str, Any]) -> None:
    assert results(status, **known) == {"overlay": "inconclusive"}


@pytest.mark.parametrize(("change", "key"), [
    ({"folder": "/opt/ktfleet/own/other"}, "overlay version"),
    ({"layers": list(range(42))}, "overlay layers"),
    ({"layers": list(range(44))}, "overlay layers"),
    ({"layers": []}, "overlay layers"),
    ({"clamped": {}}, "effective clamp"),
    ({"clamped": {str(n): 10.0 for n in range(42)}}, "effective clamp"),
    ({"clamped": {str(n): 10.0 if n else 7.0 for n in range(43)}}, "effective clamp"),
    ({"slots": {str(n): [600, 600] for n in range(43)}}, "effective top-k"),
    ({"slots": {str(n): [600, 600 if n == 3 else 400] for n in range(43)}}, "effective top-k"),
    ({"slots": {str(n): [600, 300] for n in range(43)}}, "effective top-k"),
])  # fmt: skip
def test_what_is_otherwise_fails(change: dict[str, Any], key: str) -> None:
    assert [name for name, result in results(told(**change)).items() if result != "pass"] == [key]
    assert results(told(**change))[key] == "fail"


@pytest.mark.parametrize("slots", [{}, {"0": [600, 400]}, {str(n): [600 * (n > 0), 400 * (n > 0)] for n in range(43)}])
def test_without_a_decoded_token_the_top_k_is_not_known(slots: dict[str, list[int]]) -> None:
    assert results(told(slots=slots))["effective top-k"] == "inconclusive"


def test_adaptive_k_lies_between_its_bounds() -> None:
    recipe = recipes.load(RECIPE.name, {"offload": {"adaptive": {"least": 2, "share": 0.1}}})
    for kept, result in ((200, "pass"), (287, "pass"), (400, "pass"), (199, "fail"), (401, "fail")):
        status = told(recipe, slots={str(n): [600, kept] for n in range(43)})
        assert results(status, recipe)["effective top-k"] == result
    assert seen("effective top-k", told(recipe, slots={str(n): [600, 200 + n] for n in range(43)}), recipe) == (
        "2 to 2.42 of 6"
    )


@given(st.dictionaries(st.integers(0, 50).map(str), st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))))
def test_only_exactly_four_of_six_in_each_layer_passes(slots: dict[str, tuple[int, int]]) -> None:
    good = all(slots.get(str(n), (0, 0))[0] for n in range(43)) and all(
        kept * 6 == there * 4 for there, kept in slots.values() if there
    )
    assert (results(told(slots=slots))["effective top-k"] == "pass") == good
