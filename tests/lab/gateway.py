"""What a machine without a network can reach: one HTTP address of qemu's gateway, served by a test."""

from __future__ import annotations

import shlex
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

ADDRESS = "10.0.2.100"
URL = f"http://{ADDRESS}"


def guest_forward(folder: Path) -> str:
    """The option of qemu's user network: every connection to ADDRESS is a process that joins it with our socket."""
    relay = [sys.executable, "-I", "-S", str(Path(__file__).with_name("relay.py")), str(_socket(folder))]
    return f"guestfwd=tcp:{ADDRESS}:80-cmd:{shlex.join(relay).replace(',', ',,')}"


@contextmanager
def serving(machine_folder: Path, content: Path) -> Iterator[None]:
    """Serve the files below `content` to the machine at URL; afterwards nobody answers there."""
    address = _socket(machine_folder)
    address.unlink(missing_ok=True)
    with _Server(str(address), partial(_Handler, directory=str(content))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            address.unlink()


def _socket(folder: Path) -> Path:
    return folder.resolve() / "gateway.sock"


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *words: object) -> None:
        """Quiet; a unix socket's peer has no address to log either."""
