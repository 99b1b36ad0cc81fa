"""The server's front: Debian's haproxy with the rendered configuration, before an engine of the tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Data, Key, Server, Workstation
from ktfleet.measure.ask import Server as Client
from ktfleet.measure.ask import complete
from ktfleet.measure.server import Order, measure
from ktfleet.plan import files, places
from ktfleet.sources import Weights
from tests import engine
from tests.states import workstation

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin")
KEY = "0123456789abcdef-s3cret"
LIMIT_S = 60


class Engine(engine.Handler):
    """Says one word, then waits until it may go on; keeps the headers that it was asked with."""

    go: threading.Event
    asked: list[dict[str, str]]

    def _answer(self, asked: dict[str, Any]) -> None:
        self.asked.append(dict(self.headers))
        if asked["max_tokens"] == 1:
            super()._answer(asked)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in ("one", "two"):
            event = f"data: {word}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.go.wait(LIMIT_S)
        self.wfile.write(b"0\r\n\r\n")


@dataclass
class Front:
    port: int
    engine: type[Engine]
    log: Path
    key_file: Path

    def ask(self, path: str, *authorization: str, body: dict[str, Any] | None = None) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.putrequest("POST" if body else "GET", path)
        for value in authorization:
            connection.putheader("Authorization", value)
        text = json.dumps(body).encode() if body else b""
        connection.putheader("Content-Length", str(len(text)))
        connection.endheaders(text)
        return connection

    def status(self, path: str, *authorization: str) -> int:
        connection = self.ask(path, *authorization)
        status = connection.getresponse().status
        connection.close()
        return status


def two_ports() -> int:
    """A free one whose next one is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except (OSError, OverflowError):
                continue


def configuration(**server: Any) -> str:
    config = Workstation(
        recipe="dsv4-flash-mxfp4", data=Data(mount="/srv/models"), weights=Weights(),
        server=Server(key=Key(command=("true",)), **server),
    )  # fmt: skip
    made = plan.make(workstation(), config, recipes.load(config.recipe))
    return files.render(made, places.FRONT_CONFIGURATION).content or ""


@contextmanager
def haproxy(folder: Path, port: int) -> Iterator[Path]:
    assert HAPROXY, "seen no haproxy, wanted the package; scripts/setup installs it"
    (folder / "front.cfg").write_text(configuration(port=port))
    (folder / "key").write_text(f"{KEY}\n")
    log = folder / "log"
    with log.open("w") as said, subprocess.Popen(
        [HAPROXY, "-db", "-f", str(folder / "front.cfg")], env={"CREDENTIALS_DIRECTORY": str(folder)},
        stdout=said, stderr=said,
    ) as process:  # fmt: skip
        try:
            for _ in range(LIMIT_S * 10):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield log
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder, port = tmp_path_factory.mktemp("front"), two_ports()
    handler = type("Handler", (Engine,), {"engine": engine.Engine(rate=1000.0), "go": threading.Event(), "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", port + 1), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with haproxy(folder, port) as log:
                yield Front(port, handler, log, folder / "key")
        finally:
            handler.go.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("given", [
    (), ("Bearer wrong",), ("Bearer",), ("",), (KEY,), (f"Basic {KEY}",), (f"Bearer {KEY}x",), (f"Bearer {KEY[:-1]}",),
    (f"Bearer {KEY.upper()}",), (f"Bearer x {KEY}",),
])  # fmt: skip
def test_without_the_key_nobody_comes_in(front: Front, given: tuple[str, ...]) -> None:
    for path in ("/v1/models", "/health", "/server_info"):
        assert front.status(path, *given) == 401


def test_the_refusal_is_what_openai_s_clients_read(front: Front) -> None:
    response = front.ask("/v1/models").getresponse()
    assert json.loads(response.read())["error"]["code"] == "invalid_api_key"
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_with_the_key_the_api_answers_and_nothing_else_does(front: Front) -> None:
    for path in ("/v1/models", "/health", "/metrics"):
        assert front.status(path, f"Bearer {KEY}") == 200
    assert front.status("/v1/models", f"bearer {KEY}") == 200, "the word's case does not matter"
    for path in (
        "/server_info",
        "/get_server_info",
        "/flush_cache",
        "/update_weights_from_disk",
        "/",
        "/v1",
        "//v1/models",
    ):
        assert front.status(path, f"Bearer {KEY}") == 404


def test_a_stream_passes_chunk_by_chunk_and_the_key_stays_here(front: Front) -> None:
    """The engine waits for us before it goes on: a buffered first chunk would never come."""
    front.engine.go.clear()
    front.engine.asked.clear()
    connection = front.ask(
        "/v1/chat/completions", f"Bearer {KEY}", body={"max_tokens": 2, "messages": [{"content": "x"}]}
    )
    response = connection.getresponse()
    assert response.read1() == b"data: one\n\n"
    front.engine.go.set()
    assert response.read() == b"data: two\n\n"
    (headers,) = front.engine.asked
    assert not [name for name in headers if name.lower() == "authorization"], "the server is never shown the key"
    connection.close()


def test_the_key_is_in_no_process_list_and_no_log(front: Front) -> None:
    assert complete(Client(f"http://127.0.0.1:{front.port}", key=KEY), "x", 1).generated
    shown = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown.append(path.read_bytes())
        except OSError:
            continue
    assert any(b"front.cfg" in line for line in shown), "haproxy itself was looked at"
    assert not any(KEY.encode() in line for line in shown)
    assert KEY not in front.log.read_text()
    assert "GET /v1/models" in front.log.read_text()


def test_the_measurement_sees_all_of_it(front: Front) -> None:
    own, place = f"http://127.0.0.1:{front.port + 1}", f"http://127.0.0.1:{front.port}"
    record = measure(Order(url=own, front=place, key_file=str(front.key_file)))
    assert record["ready"]["ready"]
    assert {name: answer["status"] for name, answer in record["front"].items()} == {
        "without": 401, "wrong": 401, "right": 200, "other path": 404,
    }  # fmt: skip
    assert record["front"]["right"]["generated"]
    assert record["shown"] == []
    assert KEY not in json.dumps(record)
    # Somebody who gives the key on a command line is found.
    with subprocess.Popen(["sh", "-c", "read line", KEY], stdin=subprocess.PIPE) as process:
        found = measure(Order(url=own, front=place, key_file=str(front.key_file)))["shown"]
        assert process.stdin
        process.stdin.close()
    assert found == [f"the command line of process {process.pid}"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1", "192.168.1.5"])
def test_haproxy_takes_every_address(tmp_path: Path, host: str) -> None:
    assert HAPROXY, "seen no haproxy, wanted the package; scripts/setup installs it"
    (tmp_path / "front.cfg").write_text(configuration(host=host))
    (tmp_path / "key").write_text(f"{KEY}\n")
    done = subprocess.run(
        [HAPROXY, "-c", "-f", str(tmp_path / "front.cfg")], env={"CREDENTIALS_DIRECTORY": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "[WARNING]" in done.stderr) == (0, False), done.stderr
