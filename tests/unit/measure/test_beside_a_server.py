"""What wants the machine for itself tells nothing beside a server, whenever that came."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ktfleet.measure import experts, trial
from ktfleet.measure.apart import Outcome

ARMS = ({"name": "the plan", "workers": (1,), "others": (0,)},)
SIZE = {"method": "MXFP4", "experts": 8, "top_k": 2, "hidden": 64, "intermediate": 64, "bytes": 1}
CASES: tuple[tuple[ModuleType, Any], ...] = (
    (experts, {"nodes": {"0": (0,)}, "others": (1,), **SIZE}),
    (trial, {"arms": ARMS, **SIZE}),
)
MEASURED = Outcome({"arms": [1], "rounds_us": [1.0]}, "", "worker 3 not found\nall is well")


@pytest.mark.parametrize(("module", "how"), CASES)
def test_a_server_that_runs_is_not_measured_beside(module: ModuleType, how: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("1\n")
    record = module.measure(module.Order(**how, server=str(tmp_path)))
    assert record["why"] == "server running"
    assert not record.get("arms")
    assert "rounds_us" not in record


@pytest.mark.parametrize(("module", "how"), CASES)
@pytest.mark.parametrize(("starts", "why", "kept"), [(True, "server running", False), (False, "", True)])
def test_one_that_starts_meanwhile_makes_it_worthless(
    module: ModuleType, how: dict[str, Any], starts: bool, why: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter((False, starts))
    monkeypatch.setattr(module, "busy", lambda _: next(answers))
    monkeypatch.setattr(module, "apart", lambda *_: MEASURED)
    monkeypatch.setattr(experts, "_available", lambda: None)
    record = module.measure(module.Order(**how))
    assert (record["why"], bool(record.get("rounds_us"))) == (why, kept)
    assert record["said"] == ["worker 3 not found"]
