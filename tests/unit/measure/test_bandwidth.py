"""The bandwidth measurement on this machine: what it computes, how it ends. How fast it is, is judged elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ktfleet.measure import bandwidth
from ktfleet.measure.bandwidth import Order, measure
from ktfleet.measure.bandwidth_record import Record

CPUS = sorted(os.sched_getaffinity(0))[:2]
NODE = next(
    int(path.name.removeprefix("node"))
    for path in sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    if Path(f"/sys/devices/system/cpu/cpu{CPUS[0]}/{path.name}").exists()
)
SMALL: dict[str, Any] = {"mib": 64, "seconds": 0.02, "server": "/no/such/unit"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built, why = bandwidth._build(tmp_path_factory.mktemp("bandwidth"))
    assert built, why
    return built


def test_it_measures_this_machine(program: Path) -> None:
    record = Record.model_validate(measure(Order({str(NODE): CPUS}, **SMALL)))
    assert record.why == ""
    assert record.runs[0].local
    for run in record.runs:
        assert (run.error, run.wrong) == (None, False)
        assert run.read
        assert run.triad
        assert 0 < run.read.median <= run.read.best
        assert run.triad.reps >= 5
        assert 0 < run.bytes <= 64 << 20
        # It cannot be faster than any memory: a loop that the compiler left out would be.
        assert run.read.best < 2000


@pytest.mark.parametrize(("arguments", "words"), [
    (["thp", "16", "0.01", "63:0"], "mbind"), (["thp", "16", "0.01", "0:4000"], "sched_setaffinity"),
    (["hugetlb", "900000", "0.01", "0:0"], "mmap"),
])  # fmt: skip
def test_what_it_cannot_have_is_told(program: Path, arguments: list[str], words: str) -> None:
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 1
    assert f'{{"error": "{words}: ' in done.stdout


@pytest.mark.parametrize("groups", [[], ["0"], ["0:"]])
def test_wrong_arguments(program: Path, groups: list[str]) -> None:
    assert subprocess.run([program, "thp", "16", "0.01", *groups]).returncode == 2


def test_it_refuses_beside_a_running_server(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("4242\n")
    record = measure(Order({"0": [0]}, **{**SMALL, "server": str(tmp_path)}))
    assert (record["why"], record["runs"]) == ("server running", [])


def test_a_server_that_starts_meanwhile_makes_it_worthless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(bandwidth, "busy", lambda _: next(answers))
    record = measure(Order({str(NODE): CPUS}, **SMALL))
    assert (record["why"], record["runs"]) == ("server running", [])


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert measure(Order({"0": [0]}, **SMALL))["why"] == "no C compiler on this host: install gcc"


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho cannot find -lpthread >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert measure(Order({"0": [0]}, **SMALL))["why"] == "it does not compile: cannot find -lpthread"
    assert measure(Order({"0": []}, **SMALL))["why"] == "a node without CPUs"


def test_a_program_that_says_nothing_or_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\n[ "$2" = 1 ] && exec sleep 60\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setattr(bandwidth, "RUN_S", 0.2)
    run = {"cpus": {0: [0]}}
    assert "Expecting value" in bandwidth._run(program, Order({}, mib=2), run)["error"]
    assert "more than 0.2 s" in bandwidth._run(program, Order({}, mib=1), run)["error"]


def test_what_is_run_on_a_workstation_takes_less_than_30_seconds() -> None:
    order = Order({"0": range(20), "1": range(20, 40)})
    runs = bandwidth._runs(order)
    assert [run["kind"] for run in runs].count("matrix") == 4
    assert [len(run["cpus"][0]) for run in runs if run["kind"] == "sweep" and 0 in run["cpus"]] == [1, 2, 4, 8, 15, 16]
    assert runs[-1]["cpus"] == {0: list(range(20)), 1: list(range(20, 40))}
    # Two kernels each, five repetitions at least: with one thread 1 GiB at 10 GB/s is the slowest.
    slowest_s = 2 * max(order.seconds, 5 * order.mib / 1024 / 10)
    assert len(runs) * slowest_s < 25
