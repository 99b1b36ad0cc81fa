"""A small hub on loopback: it lists and gives a folder's files as Hugging Face does, and misbehaves on demand."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

REVISION = "60d8d70770c6776ff598c94bb586a859a38244f1"
NAME = "example/small-model"


@dataclass
class Hub:
    """What it gives, and how it fails. `requests` are (path, range, authorization) as they came.

    token: who does not send it gets 401. errors: path -> answers before the first good one, each a status code, or
    ("cut", n): the connection ends after n bytes of the file. ranges: whether it knows them. wrong: paths whose bytes
    differ from their hash, so many times.
    hold: path -> bytes after which it waits for `go`.
    """

    folder: Path
    token: str | None = None
    errors: dict[str, list[Any]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    wrong: dict[str, int] = field(default_factory=dict)
    listing: Any = None
    hold: dict[str, int] = field(default_factory=dict)
    go: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def listed(self) -> Any:
        """The answer of the API."""
        if self.listing is not None:
            return self.listing
        return {
            "sha": REVISION,
            "siblings": [self._sibling(path) for path in sorted(self.folder.rglob("*")) if path.is_file()],
        }

    def _sibling(self, path: Path) -> dict[str, Any]:
        content = path.read_bytes()
        entry = {"rfilename": str(path.relative_to(self.folder)), "size": len(content)}
        entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if path.suffix == ".safetensors":
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        return entry

    @property
    def files(self) -> list[str]:
        """The paths that were asked for, once each."""
        return sorted(
            {path.rpartition("/resolve/")[2].partition("/")[2] for path, _, _ in self.requests if "/resolve/" in path}
        )


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.hub.requests.append((self.path, self.headers["Range"], self.headers["Authorization"]))
        path = unquote(self.path.partition("?")[0])
        if path.startswith("/cdn/"):
            self._file(path.removeprefix("/cdn/"))
            return
        if self.hub.token and self.headers["Authorization"] != f"Bearer {self.hub.token}":
            self._say(401, b"no")
        elif path == f"/api/models/{NAME}/revision/{REVISION}" and self.path.endswith("?blobs=true"):
            error = self._error("list")
            self._say(error or 200, json.dumps(self.hub.listed()).encode())
        elif match := re.fullmatch(f"/{NAME}/resolve/{REVISION}/(.*)", path):
            port = self.headers["Host"].rpartition(":")[2]
            self._say(302, b"", Location=f"http://localhost:{port}/cdn/{match[1]}")
        else:
            self._say(404, b"no")

    def _error(self, what: str) -> Any:
        waiting = self.hub.errors.get(what)
        return waiting.pop(0) if waiting else None

    def _file(self, name: str) -> None:
        error = self._error(name)
        if isinstance(error, int):
            self._say(error, b"no", **self.hub.headers)
            return
        content = (self.hub.folder / name).read_bytes()
        if self.hub.wrong.get(name, 0):
            self.hub.wrong[name] -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        begin = int(re.fullmatch(r"bytes=(\d+)-", self.headers["Range"])[1]) if self.headers["Range"] else 0
        partial = self.hub.ranges and bool(self.headers["Range"])
        body = content[begin:] if partial else content
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: error[1]] if error else body
        first = self.hub.hold.pop(name, len(body))
        with suppress(OSError):
            self._send(body[:first])
            if first < len(body):
                self.hub.go.wait()
                self._send(body[first:])
        if error:
            self.close_connection = True

    def _send(self, body: bytes) -> None:
        self.wfile.write(body)
        self.hub.sent += len(body)

    def _say(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serve on a free port. Files are redirected to another address of it, as to a content network."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
