"""The canary against llama.cpp's server with a model that replays given answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ktfleet.judge.canary import judge
from ktfleet.measure import bundle
from ktfleet.measure.canary_record import Record
from ktfleet.measure.tasks import TASKS
from ktfleet.verdict import Verdict
from tests.answers import ALL
from tests.peer.running import serving

SHORT = [task for task in TASKS if not task.long]


def asked(folder: Path, answers: dict[str, str], **order: Any) -> dict[str, Verdict]:
    """Verdicts on a model with these answers, measured as on a host."""
    program = folder / "measure.pyz"
    program.write_bytes(bundle.zipped())
    # A prompt is one token of the model, an answer two.
    replayed = {task.prompt: (text[: len(text) // 2], text[len(text) // 2 :]) for task in SHORT
                if (text := answers[task.name])}  # fmt: skip
    with serving(folder, replayed) as server:
        order = {"url": server.url, "tasks": [task.name for task in SHORT], "tokens": 64, **order}
        done = subprocess.run(
            [sys.executable, "-I", program, "canary", json.dumps(order)], capture_output=True, text=True, timeout=300
        )
    assert (done.returncode, done.stderr) == (0, "")
    return {verdict.key: verdict for verdict in judge(Record.model_validate_json(done.stdout))}


def test_right_answers_pass_and_one_wrong_one_fails(tmp_path: Path) -> None:
    right = {f"canary {task.name}": "pass" for task in SHORT} | {"canary repetition": "pass"}
    assert {key: verdict.result for key, verdict in asked(tmp_path, ALL).items()} == right
    wrong = ALL["fib"].replace("range(n)", "range(n + 1)")
    found = asked(tmp_path, {**ALL, "fib": wrong}, tasks=["fib", "primes"], twice=False)
    assert {key: verdict.result for key, verdict in found.items()} == {"canary fib": "fail", "canary primes": "pass"}


def test_a_model_that_goes_in_a_circle_writes_garbage(tmp_path: Path) -> None:
    (verdict,) = asked(tmp_path, dict.fromkeys(ALL, ""), tasks=["fib"], tokens=320, twice=False).values()
    assert (verdict.result, verdict.seen.startswith("garbage: its last 1600 characters")) == ("fail", True)
