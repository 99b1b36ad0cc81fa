"""Verdicts on the server, from what was seen of it."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Data, Key, Server, Workstation
from ktfleet.judge.server import begun, judge
from ktfleet.measure.server_record import SCHEMA, Record
from ktfleet.plan import Plan, places
from ktfleet.sources import Weights
from tests.states import converged, with_data_disk, workstation
from tests.unit.judge.test_overlay import NOW, told

READY = {"ready": True, "waited_s": 0.1}
FRONT = {
    "without": {"status": 401}, "wrong": {"status": 401}, "right": {"status": 200, "generated": True},
    "other path": {"status": 404},
}  # fmt: skip


def made(recipe: str = "dsv4-flash-mxfp4", **config: Any) -> Plan:
    wanted = Workstation(recipe=recipe, data=Data(mount="/srv/models", label="models"), weights=Weights(), **config)
    return plan.make(workstation(), wanted, recipes.load(wanted.recipe))


LOOPBACK, PUBLIC = made(), made(server=Server(host="0.0.0.0", key=Key(command=("true",))))


def judged(wanted: Plan, **record: Any) -> dict[str, tuple[str, str]]:
    state = with_data_disk(converged(wanted), wanted)
    found = judge(wanted, state, Record.model_validate({"schema": SCHEMA, "ready": READY, **record}))
    return {verdict.key: (verdict.result, verdict.seen) for verdict in found}


def test_a_good_server() -> None:
    found = judged(LOOPBACK)
    assert found.pop("overlay")[0] == "skipped"
    assert {result for result, _ in found.values()} == {"pass"}
    found = judged(PUBLIC, front=FRONT, shown=[])
    assert {result for result, _ in found.values()} == {"pass", "skipped"}
    assert {"front asks for the key", "front takes the key", "key is not shown"} <= set(found)


@pytest.mark.parametrize(("record", "key", "seen"), [
    ({"ready": {"ready": False, "waited_s": 60, "why": "its answer has no token"}}, "server answers",
     "its answer has no token"),
    ({"front": {**FRONT, "without": {"status": 200}}}, "front asks for the key", "200, 401"),
    ({"front": {**FRONT, "wrong": {}}}, "front asks for the key", "401, no answer"),
    ({"front": {**FRONT, "right": {"status": 401, "why": "no"}}}, "front takes the key", "no"),
    ({"front": {**FRONT, "other path": {"status": 200}}}, "front hides other paths", "200"),
    ({"shown": ["/server_info"]}, "key is not shown", "/server_info"),
])  # fmt: skip
def test_each_thing_that_can_be_wrong(record: dict[str, Any], key: str, seen: str) -> None:
    found = judged(PUBLIC, **{"front": FRONT, "shown": [], **record})
    assert {name for name, (result, _) in found.items() if result not in ("pass", "skipped")} == {key}
    assert found[key] == ("fail", seen)


def test_what_was_not_asked_is_inconclusive() -> None:
    found = judged(PUBLIC, key="/etc/ktfleet/server.key: no such file or directory")
    unsure = {name for name, (result, _) in found.items() if result == "inconclusive"}
    assert unsure == {"front asks for the key", "front takes the key", "key is not shown"}
    state = with_data_disk(converged(LOOPBACK), LOOPBACK)
    assert [v.key for v in judge(LOOPBACK, state, None) if v.result == "inconclusive"] == ["server answers"]
    assert [v.result for v in (*judge(LOOPBACK, None, None), *begun())] == ["inconclusive"] * 2


def test_its_overlay_is_judged_with_it() -> None:
    wanted = made("dsv4-flash-mxfp4-top4")
    text = told(wanted.recipe).model_dump_json(by_alias=True).replace("schema_version", "schema")
    found = judged(wanted, overlay={"text": text, "pids": [76, 77], "now": NOW})
    assert {result for result, _ in found.values()} == {"pass"}
    assert found["effective top-k"] == ("pass", "4 of 6")
    other = judged(wanted, overlay={"text": text, "pids": [78], "now": NOW})
    assert {name for name, (result, _) in other.items() if result != "pass"} == {"overlay"}
    assert judged(wanted)["overlay"] == judged(wanted, overlay={"now": NOW, "why": "none"})["overlay"]
    assert judged(wanted)["overlay"][0] == "inconclusive"


def test_another_server_than_wanted_fails_although_it_answers() -> None:
    state = with_data_disk(converged(LOOPBACK), LOOPBACK)
    state = state.model_copy(update={"texts": {**state.texts, places.SERVER_STARTED: "{}"}})
    found = judge(LOOPBACK, state, Record.model_validate({"schema": SCHEMA, "ready": READY}))
    assert [verdict.key for verdict in found if verdict.result == "fail"] == ["server's start"]


def test_without_a_server_it_is_skipped_with_its_reason() -> None:
    (verdict,) = judge(made(stack=None), workstation(), None)
    assert (verdict.result, verdict.why) == ("skipped", "nothing is served: the configuration says stack = None")
