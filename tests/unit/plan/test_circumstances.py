"""What a measurement holds for: equal for the same host and plan, another one when a part of it changes."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Hugepages, Server, Workstation
from ktfleet.host.state import HostState, Nvidia
from ktfleet.plan.circumstances import ALL, CARD, DRIVER_VERSION, HOST, circumstances
from ktfleet.plan.places import STACK
from tests.states import converged, workstation

TOP_6, TOP_4 = "dsv4-flash-amxint4", "dsv4-flash-amxint4-top4"


def of(config: Workstation | None = None, recipe: str = TOP_6, **changed: Any) -> dict[str, str]:
    made = plan.make(workstation(), config or Workstation(), recipes.load(recipe))
    state = converged(made)
    found = circumstances(made, state.model_copy(update={**{"kernel": state.kernel}, **changed}))
    assert found is not None
    return dict(found)


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in ALL if one[name] != other[name]}


def booted(**changed: str | None) -> dict[str, Any]:
    return {
        "kernel": converged(plan.make(workstation(), Workstation(), recipes.load(TOP_6))).kernel.model_copy(
            update=changed
        )
    }


def test_the_same_host_has_the_same_ones() -> None:
    assert of() == of()
    assert set(of()) == set(ALL)


@pytest.mark.parametrize(("other", "parts"), [
    (lambda: of(**booted(boot_id="another")), {"boot"}),
    (lambda: of(**booted(release="6.2.0-another")), {"kernel"}),
    (lambda: of(nvidia=Nvidia(loaded="590.1")), {"driver"}),
    (lambda: of(links={STACK: "/opt/ktfleet/stacks/another"}), {"stack"}),
    (lambda: of(recipe=TOP_4), {"recipe"}),
    (lambda: of(Workstation(server=Server(port=31000))), {"recipe"}),
    (lambda: of(Workstation(wake_latency_us=50)), {"plan"}),
])  # fmt: skip
def test_what_changed_is_told(other: Any, parts: set[str]) -> None:
    assert differing(of(), other()) >= parts
    assert differing(of(), other()) <= parts | {"plan", "recipe"}


def test_another_recipe_is_none_to_the_memory_s_bandwidth_nor_to_the_card() -> None:
    """Both run through recipes and servers on the way to a good one."""
    server = Workstation(server=Server(port=31000))
    assert differing(of(), of(server)).isdisjoint({*HOST, *CARD})


def test_huge_pages_are() -> None:
    assert "plan" in differing(of(), of(Workstation(hugepages=Hugepages(policy="off"))))


@pytest.mark.parametrize("unread", [
    booted(boot_id=None),
    booted(release=None),
    {"unreadable": {DRIVER_VERSION: "no rights"}},
    {"links": {}, "unreadable": {STACK: "no rights"}},
])  # fmt: skip
def test_what_cannot_be_told_keeps_nothing(unread: dict[str, Any]) -> None:
    made = plan.make(workstation(), Workstation(), recipes.load(TOP_6))
    state: HostState = converged(made).model_copy(update=unread)
    assert circumstances(made, state) is None
