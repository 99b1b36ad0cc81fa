"""The package's import, as sglang does it, in a process that has neither torch nor sglang."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ktfleet.plan.overlay.wanted import sources
from tests.unit.runtime.test_settings import GOOD


def placed(folder: Path) -> Path:
    """The overlay as it lies on a host: ktfleet's other parts are not there."""
    for name, text in sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def imported(
    folder: Path, package: str | None = "ktfleet.runtime", **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    if package:
        environment["SGLANG_EXTERNAL_MODEL_PACKAGE"] = package
    command = [sys.executable, "-c", "import ktfleet.runtime; print('went on')"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def test_without_sglang_s_variable_nothing_happens(tmp_path: Path) -> None:
    done = imported(placed(tmp_path), package=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
    assert imported(tmp_path, package="somebody.else").returncode == 0


@pytest.mark.parametrize(("asked", "line"), [
    ({}, "ktfleet overlay: KTFLEET_OVERLAY: seen nothing, wanted a JSON object; start the server as"),
    ({"KTFLEET_OVERLAY": "{"}, "ktfleet overlay: KTFLEET_OVERLAY: seen '{', wanted a JSON object"),
    ({"KTFLEET_OVERLAY": json.dumps({**GOOD, "top_k": 9})}, "ktfleet overlay: KTFLEET_OVERLAY: top_k: seen 9, wanted"),
])  # fmt: skip
def test_a_wrong_setting_ends_the_process_with_one_line(tmp_path: Path, asked: dict[str, str], line: str) -> None:
    done = imported(placed(tmp_path), **asked)
    assert (done.returncode, done.stdout) == (1, "")
    (seen,) = done.stderr.splitlines()
    assert seen.startswith(line)


def test_a_server_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Every pin that matters, and nothing of it was imported: this Python has no torch."""
    done = imported(placed(tmp_path), KTFLEET_OVERLAY=json.dumps(GOOD))
    assert (done.returncode, done.stdout) == (1, "")
    seen = done.stderr.splitlines()
    assert len(seen) > 10
    assert all(line.startswith(("ktfleet overlay: sglang/", "ktfleet overlay: kt_kernel/")) for line in seen)
    assert all(": seen no such package, wanted " in line for line in seen)


@pytest.mark.parametrize("module", ["settings", "start", "pins", "upstream"])
def test_a_module_that_cannot_be_imported_is_not_passed_over(tmp_path: Path, module: str) -> None:
    (placed(tmp_path) / f"ktfleet/runtime/{module}.py").write_text("import no_such_module\n")
    done = imported(tmp_path, KTFLEET_OVERLAY=json.dumps(GOOD))
    assert (done.returncode, done.stdout) == (1, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ktfleet overlay: its modules: seen ModuleNotFoundError: No module named 'no_such_module'")


def test_a_file_that_is_missing_is_not_passed_over(tmp_path: Path) -> None:
    shutil.rmtree(placed(tmp_path) / "ktfleet" / "runtime" / "__pycache__", ignore_errors=True)
    (tmp_path / "ktfleet" / "problem.py").unlink()
    assert imported(tmp_path, KTFLEET_OVERLAY=json.dumps(GOOD)).returncode == 1
