"""What is read of the running server's overlay, beside a server of the tests that writes its file as the real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ktfleet.measure import overlay
from ktfleet.measure.overlay_record import Seen
from ktfleet.measure.server import Order, measure
from ktfleet.measure.server_record import Record
from tests import engine

HERE = "no such file or directory"


class Late(engine.Handler):
    """It counts what it has decoded, and writes that down a while after it has answered, as the overlay does."""

    file: Path

    def _answer(self, asked: dict[str, Any]) -> None:
        super()._answer(asked)
        threading.Timer(0.5, self.file.write_text, (f"decoded {asked['max_tokens']}",)).start()


@contextmanager
def serving(file: Path) -> Iterator[str]:
    handler = type("Made", (Late,), {"file": file, "engine": engine.Engine(rate=500)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    folder = tmp_path / "unit"
    folder.mkdir()
    (folder / "cgroup.procs").write_text("76\n77\n")
    return folder


def test_it_is_read_after_tokens_were_decoded_and_written_down(tmp_path: Path, unit: Path) -> None:
    file = tmp_path / "overlay.json"
    file.write_text("of an earlier server")
    with serving(file) as url:
        record = Record.model_validate(measure(Order(url, overlay=str(file), cgroup=str(unit))))
    assert record.overlay
    assert record.ready.ready
    assert (record.overlay.text, record.overlay.pids, record.overlay.why) == ("decoded 16", (76, 77), "")
    assert abs(record.overlay.now - time.time()) < 60


def test_a_server_that_does_not_answer_is_not_waited_for_and_its_file_read(
    tmp_path: Path, unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "overlay.json"
    file.write_text("{}")
    monkeypatch.setattr(overlay, "_wait", pytest.fail)
    record = measure(Order("http://127.0.0.1:1", ready_s=0, overlay=str(file), cgroup=str(unit)))
    assert (record["ready"]["ready"], record["overlay"]["text"]) == (False, "{}")


def test_without_an_overlay_nothing_is_looked_for() -> None:
    assert "overlay" not in measure(Order("http://127.0.0.1:1", ready_s=0))


@pytest.mark.parametrize("write", [None, "", "\udcff", "x" * (2 * overlay.READ)])
def test_whatever_lies_there_is_told(tmp_path: Path, write: str | None) -> None:
    file = tmp_path / "overlay.json"
    if write is not None:
        file.write_bytes(write.encode(errors="surrogateescape"))
    seen = Seen.model_validate(overlay.look(str(file), str(tmp_path / "no unit")))
    assert (seen.text is None, seen.pids) == (write is None, ())
    assert seen.why == ("" if write is not None else f"{file}: {HERE}")
    assert len(seen.text or "") <= overlay.READ


def test_a_file_that_never_comes_is_waited_for_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "RENEWED_S", 0.3)
    assert overlay.look(str(tmp_path / "none"), str(tmp_path), after=0.0)["text"] is None


def test_processes_that_cannot_be_read_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("x\n")
    assert overlay.look(str(tmp_path / "none"), str(tmp_path))["pids"] is None
