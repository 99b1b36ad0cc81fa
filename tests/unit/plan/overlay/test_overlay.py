"""The overlay's way onto a host: what it consists of, its name, the commands, some of them run by a real shell."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ktfleet import plan, recipes, verdict
from ktfleet.config import Workstation
from ktfleet.plan import Plan
from ktfleet.plan.overlay import changes, overlay, wanted
from ktfleet.plan.overlay.proven import KEY
from ktfleet.plan.places import OVERLAYS
from ktfleet.plan.request import request
from ktfleet.problem import Refused
from tests.states import converged, workstation


def made(name: str = "dsv4-flash-amxint4-top4", override: dict[str, Any] | None = None, **config: Any) -> Plan:
    recipe = recipes.load(name, override or {})
    return plan.make(workstation(), Workstation(recipe=name, gpu=None, **config), recipe)


def test_it_is_placed_once(tmp_path: Path) -> None:
    found = made()
    commands = changes.place(found, workstation())
    assert len(commands) == len(wanted.sources())
    assert changes.place(found, converged(found)) == ()
    for command in commands:
        subprocess.run(["sh", "-ec", command.replace(OVERLAYS, str(tmp_path))], check=True)
    folder = tmp_path / wanted.folder().rpartition("/")[2]
    there = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert there == wanted.sources()


def test_a_changed_file_is_seen_and_put_back() -> None:
    found = made()
    state = converged(found)
    path = f"{wanted.folder()}/ktfleet/runtime/hooks.py"
    assert path in request(found.config).files
    spoiled = state.model_copy(update={"files": {**state.files, path: "0" * 64}})
    (command,) = changes.place(found, spoiled)
    assert path in command
    bad = [each.key for each in verdict.drift(found, spoiled) if each.result == "fail"]
    assert bad == [KEY]
    assert [str(each) for each in verdict.drift(found, state) if each.key == KEY] == [f"{KEY}: {wanted.folder()}"]
    unread = state.model_copy(update={"unreadable": {**state.unreadable, path: "permission denied"}})
    assert [each.result for each in verdict.drift(found, unread) if each.key == KEY] == ["inconclusive"]


@pytest.mark.parametrize(("name", "config"), [("dsv4-flash-mxfp4", {}), ("dsv4-flash-amxint4", {"stack": None})])
def test_what_nothing_loads_is_not_placed(name: str, config: dict[str, Any]) -> None:
    assert changes.place(made(name, **config), workstation()) == ()


def test_another_content_is_another_folder_and_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before = made()
    assert before.overlay
    assert before.launch.environment["PYTHONPATH"] == before.overlay.folder == before.to_json()["overlay"]
    changed = {**wanted.sources(), "ktfleet/runtime/hooks.py": "# changed\n"}
    wanted.folder.cache_clear()
    monkeypatch.setattr(wanted, "sources", lambda: changed)
    after = made()
    wanted.folder.cache_clear()
    assert after.overlay
    assert after.overlay.folder != before.overlay.folder
    assert after.launch.environment != before.launch.environment
    assert after.stack == before.stack, "no package is installed again for it"


def test_each_process_makes_the_same_one() -> None:
    program = "from ktfleet.plan.overlay.wanted import folder; print(folder())"
    names = {
        subprocess.check_output([sys.executable, "-c", program], text=True, env={"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }
    assert names == {f"{wanted.folder()}\n"}


def test_it_is_whole() -> None:
    """Everything of ktfleet that it imports is in it, and it runs in the server's Python, 3.11 or 3.12."""
    texts = wanted.sources()
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text, name, feature_version=(3, 11))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in (each for each in modules if each.startswith("ktfleet")):
                path = module.replace(".", "/")
                assert {f"{path}.py", f"{path}/__init__.py"} & texts.keys(), (name, module)
    assert set(made().launch.environment) & {"PYTHONPATH"}


def test_a_method_that_it_cannot_prove_is_refused() -> None:
    (problem,) = [
        each for each in made("qwen3-30b-a3b-bf16", {"offload": {"top_k": 4}}).refusals if "overlay" in each.what
    ]
    assert str(problem) == (
        "qwen3-30b-a3b-bf16: the overlay for clamp, top_k or counts: seen method BF16, wanted one of AMXINT4, MXFP4; "
        "change the method, or remove offload.top_k, offload.adaptive and offload.count_routing"
    )
    assert not [each for each in made().refusals if "overlay" in each.what]


@pytest.mark.parametrize(("adaptive", "key"), [
    ({"least": 2}, "offload.adaptive.share"), ({"least": 0, "share": 0.1}, "offload.adaptive.least"),
    ({"least": 2, "share": 1.0}, "offload.adaptive.share"), ({"least": 5, "share": 0.1}, "offload.adaptive.least"),
])  # fmt: skip
def test_a_wrong_adaptive_k_is_one_line(adaptive: dict[str, Any], key: str) -> None:
    with pytest.raises(Refused) as caught:
        recipes.load("dsv4-flash-amxint4-top4", {"offload": {"adaptive": adaptive}})
    (problem,) = caught.value.problems
    assert key in str(problem)


def test_counting_alone_is_a_reason_for_it() -> None:
    found = overlay(recipes.load("dsv4-flash-mxfp4", {"offload": {"count_routing": True}}))
    assert found
    assert json.loads(found.asked)["counts"] == wanted.COUNTS
