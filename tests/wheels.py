"""Wheels that a test makes, a lock of them, and an index that serves them on loopback."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    code: str = "",
    tag: str = "py3-none-any",
    more: Mapping[str, str | bytes] | None = None,
) -> Path:
    """One wheel with one module of its name; `more`: further files, by their paths in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, about = folder / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    files: dict[str, str | bytes] = {
        f"{name}.py": code,
        **(more or {}),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    contents = {place: data.encode() if isinstance(data, str) else data for place, data in files.items()}
    record = [f"{place},sha256={_digest(data)},{len(data)}" for place, data in contents.items()]
    contents[f"{about}/RECORD"] = "\n".join((*record, f"{about}/RECORD,,", "")).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for place, data in contents.items():
            archive.writestr(place, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def lock(*wheels: Path) -> str:
    """As `uv pip compile --generate-hashes` writes it."""
    return "# a lock of a test's\n" + "".join(_entry(wheel) for wheel in wheels)


def _entry(wheel: Path) -> str:
    name, version, *_ = wheel.name.split("-")
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


@dataclass
class Index:
    """`url` is a simple index of the wheels in `folder`. `requests`: the paths that were asked for."""

    folder: Path
    url: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def serving(folder: Path) -> Iterator[Index]:
    """Answer on loopback; afterwards nobody does."""
    index = Index(folder)
    handler = partial(_Handler, index, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield index
        finally:
            server.shutdown()
            thread.join()


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, index: Index, *arguments: object, directory: str) -> None:
        self.index = index
        super().__init__(*arguments, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.index.requests.append(self.path)
        if not self.path.startswith("/simple/"):
            super().do_GET()
            return
        name = self.path.removeprefix("/simple/").strip("/")
        wheels = sorted(path.name for path in self.index.folder.glob(f"{name.replace('-', '_')}-*.whl"))
        page = "".join(f'<a href="/{wheel}">{wheel}</a>\n' for wheel in wheels).encode()
        self.send_response(200 if wheels else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *words: object) -> None:
        """Quiet."""


def publish(folder: Path) -> None:
    """Pages of a simple index, for a server of plain files, of the wheels in `folder`."""
    for wheel in sorted(folder.glob("*.whl")):
        name = wheel.name.partition("-")[0].replace("_", "-")
        page = folder / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a") as file:
            file.write(f'<a href="/{wheel.name}">{wheel.name}</a>\n')
