"""The unit's main process around real processes: the stand-in of the server, started as a host starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ktfleet.host import bundle
from ktfleet.server.job import Job, identity

LIMIT_S = 60
TESTS = Path(__file__).parents[2]
MODULES = {"__init__.py": "", "engine.py": "engine.py", "launch_server.py": "stand_in.py"}
"""Of the package that takes sglang's place -> what of the tests it is; "": nothing."""


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(LIMIT_S * 10):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError(f"not true after {LIMIT_S} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Running:
    """The program, as the unit runs it."""

    process: subprocess.Popen[bytes]
    runtime: Path
    job: Job

    def told(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.runtime / "progress.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def state(self) -> str | None:
        return self.told().get("state")

    def child(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def ended(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, said.decode()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "server"
    path.write_text(bundle.source(bundle.SERVER))
    return path


def job(folder: Path, ready_s: int = LIMIT_S, **told: Any) -> Job:
    (folder / "sglang").mkdir(exist_ok=True)
    for name, source in MODULES.items():
        (folder / "sglang" / name).write_text(source and (TESTS / source).read_text())
    port = free_port()
    return Job(
        argv=(sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1", "--port", str(port), "--other", "x"),
        environment={"PYTHONPATH": str(folder), "STAND_IN": json.dumps(told), "ONLY": "this"},
        cpus="0-1",
        url=f"http://127.0.0.1:{port}",
        model="tiny",
        layers=43,
        ready_s=ready_s,
        stack=str(folder / "stack"),
        watched={"weights": (str(folder / "manifest"),)},
    )


@contextmanager
def running(program: Path, job: Job, folder: Path, notify: str = "") -> Iterator[Running]:
    runtime, file = folder / "runtime", folder / "job.json"
    runtime.mkdir()
    (runtime / "overlay.json").write_text("of an earlier server")
    file.write_text(job.to_json())
    process = subprocess.Popen(
        (sys.executable, "-I", "-S", str(program), "run", str(file)),
        env={"RUNTIME_DIRECTORY": str(runtime), "NOTIFY_SOCKET": notify, "STRAY": "SGLANG"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield Running(process, runtime, job)
    finally:
        process.kill()
        process.wait()


def test_a_start_that_ends_ready(program: Path, tmp_path: Path) -> None:
    (tmp_path / "stack").symlink_to("/opt/ktfleet/stacks/0123")
    (tmp_path / "manifest").write_text("x")
    wanted = job(tmp_path)
    address = str(tmp_path / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        running(program, wanted, tmp_path, address) as server,
    ):
        systemd.bind(address)
        systemd.settimeout(LIMIT_S)
        assert not (server.runtime / "overlay.json").exists() or server.state() is None
        wait_until(lambda: server.state() == "done")
        assert not (server.runtime / "overlay.json").exists(), "what an earlier one told is gone"
        started = json.loads((server.runtime / "started.json").read_text())
        digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
        assert started == identity(wanted, "/opt/ktfleet/stacks/0123", {str(tmp_path / "manifest"): digest}.get)
        environ = Path(f"/proc/{server.child()}/environ").read_text().rstrip("\0").split("\0")
        assert dict(each.split("=", 1) for each in environ) == wanted.environment, "nothing is inherited"
        said = ""
        while "STATUS=ready" not in said or "WATCHDOG=1" not in said:
            said += systemd.recv(4096).decode() + "\n"
        server.process.send_signal(signal.SIGTERM)
        code, log = server.ended()
    assert (code, server.state()) == (0, None), "stopped is no failure"
    assert "Load weight begin" in log, "the journal has the server's own log"


def test_signals_are_passed_on_and_its_end_is_ours(program: Path, tmp_path: Path) -> None:
    with running(program, job(tmp_path), tmp_path) as server:
        wait_until(lambda: server.state() == "done")
        os.kill(server.child(), signal.SIGKILL)
        code, log = server.ended()
    assert code == 128 + signal.SIGKILL
    (line,) = server.told()["problems"]
    assert line.startswith("the server ended: seen signal 9; ")
    assert f"ktfleet: {line}" in log


def test_an_error_at_the_start(program: Path, tmp_path: Path) -> None:
    with running(program, job(tmp_path, ends="RuntimeError: no such thing"), tmp_path) as server:
        assert server.ended()[0] == 1
        assert "its last word: 'RuntimeError: no such thing'" in server.told()["problems"][0]


def test_no_such_program(program: Path, tmp_path: Path) -> None:
    wanted = job(tmp_path)
    broken = Job(**{**vars(wanted), "argv": ("/opt/ktfleet/stack/bin/python", *wanted.argv[1:])})
    with running(program, broken, tmp_path) as server:
        assert server.ended()[0] == 1
        assert server.told()["problems"] == [
            "the server cannot be started: seen /opt/ktfleet/stack/bin/python: no such file or directory, wanted a "
            "program; run deploy.py again"
        ]


def test_a_fatal_line_is_told_at_once_and_it_is_never_ready(program: Path, tmp_path: Path) -> None:
    with running(program, job(tmp_path, says=["Core 2 inside NUMA node 1 not found"]), tmp_path) as server:
        wait_until(lambda: server.state() == "failed")
        health = b"GET /health HTTP/1.0\r\n\r\n"

        def answers() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", int(server.job.argv[6])), timeout=5) as connection:
                    connection.sendall(health)
                    return b"200" in connection.recv(100)
            except OSError:
                return False

        wait_until(answers)
        time.sleep(3)  # longer than the supervisor needs for its token
        assert server.process.poll() is None, "it goes on"
        assert server.told()["problems"][0].startswith("a worker found no core of its own")


def test_one_that_is_up_and_generates_nothing_is_ended(program: Path, tmp_path: Path) -> None:
    with running(program, job(tmp_path, ready_s=3, silent=True), tmp_path) as server:
        code, _ = server.ended()
    assert code == 1
    (line,) = server.told()["problems"]
    assert line.startswith("the server is up and generates nothing: seen its answer has no token after ")
    assert "wanted /health and one token within 3 s" in line


def test_one_that_is_not_ready_in_time_is_ended(program: Path, tmp_path: Path) -> None:
    wanted = job(tmp_path, ready_s=2)
    slow = Job(**{**vars(wanted), "argv": (sys.executable, "-c", "import time; time.sleep(99)")})
    with running(program, slow, tmp_path) as server:
        code, _ = server.ended()
    assert code == 1
    assert server.told()["problems"][0].startswith("the server is not ready in time: seen Connection refused after ")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"argv": []}'])
def test_a_job_that_cannot_be_read(program: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    for arguments, given in ((("run", str(tmp_path / "job.json")), ""), (("check",), text)):
        done = subprocess.run(
            (sys.executable, "-I", str(program), *arguments), input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stdout.startswith("the server's job cannot be read: seen ")
        assert "Traceback" not in done.stderr
