"""The whole protocol against llama.cpp's server, as it runs on a host: one zip file, isolated."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ktfleet.judge.decode import judge
from ktfleet.judge.decode.wanted import Setup, Wanted
from ktfleet.measure import bundle
from ktfleet.measure.ask import Server, complete
from ktfleet.measure.decode_record import Record
from ktfleet.measure.serving import watched
from tests.peer.running import serving

SHORT = {"tokens": 64, "repeats": 5, "ladder": [300], "ladder_tokens": 16, "streams": [2], "probe": 500,
         "probe_s": 60.0, "ready_s": 5.0}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("decode"), {}, parallel=2) as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "measure.pyz"
    path.write_bytes(bundle.zipped())
    return path


def measure(program: Path, order: dict[str, Any]) -> Record:
    done = subprocess.run(
        [sys.executable, "-I", program, "decode", json.dumps(order)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Record.model_validate_json(done.stdout)


def test_the_protocol_measures_a_real_server(server: Server, program: Path) -> None:
    record = measure(program, {"url": server.url, **SHORT})
    assert record.ready.ready
    assert record.stopped is None
    assert [run.prompt for run in record.runs] == ["prose", "code"] * 5
    assert {(run.tokens, run.finish, run.foreign) for run in record.runs} == {(64, "length", 0)}
    (rung,), (together,) = record.ladder, record.streams
    assert rung.prompt_tokens
    assert 200 <= rung.prompt_tokens <= 400
    assert (together.count, together.verdict, together.foreign, len(together.runs)) == (2, "ok", 0, 2)
    assert record.probe
    assert record.probe.verdict == "ok"
    # A machine that tests run on is no quiet one: the spread is not judged here.
    verdicts = {v.key: v.result for v in judge(Wanted(Setup("none", 1, "here"), spread=9.0), record)}
    assert verdicts["decode of prose"] == verdicts["decode of code"] == verdicts["decode long prompt"] == "pass"


def test_who_else_uses_the_server_is_seen(server: Server) -> None:
    guest = threading.Thread(target=complete, args=(server, "a guest", 400), kwargs={"ignore_eos": True})
    guest.start()
    with watched(server, own=1) as watch:
        complete(server, "we", 200, ignore_eos=True)
    guest.join()
    assert watch.foreign == 1


def test_a_server_that_is_not_there_ends_it_at_once(program: Path) -> None:
    record = measure(program, {"url": "http://127.0.0.1:9", "ready_s": 0.0})
    assert (record.ready.ready, record.ready.why, record.runs) == (False, "Connection refused", ())


def test_a_missing_key_file_is_told(program: Path, tmp_path: Path) -> None:
    record = measure(program, {"url": "http://127.0.0.1:9", "key_file": str(tmp_path / "none")})
    assert record.ready.why.endswith("none: No such file or directory")


@pytest.mark.parametrize("arguments", [[], ["decode"], ["decode", "[]"], ["decode", "{"], ["decode", "{}"],
                                       ["decode", '{"uri": "x"}'], ["other", "{}"]])  # fmt: skip
def test_wrong_arguments_are_told_in_one_line(program: Path, arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-I", program, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
