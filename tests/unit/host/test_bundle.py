"""Packages as one program, run by a bare interpreter."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ktfleet.host import bundle
from ktfleet.weights.job import Hub, Job
from tests import hub
from tests.weights import SMALL, write_checkpoint, write_merged


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", "-c", source, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)


def test_the_weights_program_runs_without_anything_installed(tmp_path: Path) -> None:
    source = bundle.source(bundle.WEIGHTS)
    write_merged(tmp_path / "shards", SMALL)
    write_checkpoint(tmp_path / "checkpoint")
    job = Job(
        hub.NAME, hub.REVISION, str(tmp_path / "checkpoint"), 1, None, Hub("http://127.0.0.1:9"),
        str(tmp_path / "shards"), 1, SMALL,
    )  # fmt: skip
    (tmp_path / "job.json").write_text(job.to_json())
    done = run(source, "verify", "--deep", str(tmp_path / "job.json"))
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "shards/model-00001-of-00003.safetensors").write_bytes(b"")
    done = run(source, "verify", str(tmp_path / "job.json"))
    assert done.returncode == 1
    assert done.stderr.startswith("model-00001-of-00003.safetensors is broken: seen 0 bytes")
    assert run(source, "nonsense").returncode == 2


def test_it_needs_nothing_newer_than_the_oldest_supported_python() -> None:
    """Ubuntu 22.04 has 3.10: its grammar, and no module that came later."""
    for path in (Path(bundle.__file__).parents[1] / "weights").glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert "tomllib" not in imported
        ours = {name for name in imported if name and name.startswith("ktfleet")}
        assert all(name.startswith("ktfleet.weights") or name in bundle.SHARED for name in ours), path
        assert all(name.partition(".")[0] in sys.stdlib_module_names for name in imported - ours if name), path


@pytest.mark.parametrize("main", [bundle.PROBE, bundle.WEIGHTS])
def test_every_process_makes_the_same_program(main: str) -> None:
    """A host's file is compared with it: another order of modules would be a change in every run."""
    code = f"from ktfleet.host import bundle; print(bundle.source({main!r}))"
    command = [sys.executable, "-c", code]
    made = {
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(made) == 1
