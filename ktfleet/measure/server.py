"""Does the server answer with a token, what does its overlay tell, and does its front ask for the key?

It decides nothing: `judge/server/` judges. The key is read from its file, and is in no part of the record. Only the
standard library.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ktfleet.measure import overlay
from ktfleet.measure.ask import Server, complete, page
from ktfleet.measure.serving import wait_until_ready
from ktfleet.measure.stream import Limits

SCHEMA = 1
PAGES = ("/server_info", "/get_server_info")
"""Where sglang shows its arguments."""
ASKED = Limits(first_s=120, idle_s=60, total_s=180)
DECODED = 16
"""Tokens that are asked for before the overlay is: what it leaves out, it leaves out of decoded tokens alone."""


@dataclass(frozen=True)
class Order:
    """What to ask. ready_s: seconds that the server may take. front, key_file: its front, and the key for it.

    overlay: where its overlay tells what it does; None: it has none. cgroup: of the server's unit.
    """

    url: str
    model: str = "default"
    ready_s: float = 60.0
    front: str | None = None
    key_file: str | None = None
    overlay: str | None = None
    cgroup: str = "/sys/fs/cgroup/system.slice/ktfleet-server.service"


def measure(order: Order) -> dict[str, Any]:
    """Every answer; None where it was not asked."""
    server = Server(order.url, order.model)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "order": asdict(order),
        "ready": wait_until_ready(server, order.ready_s),
    }
    if order.overlay:
        record["overlay"] = _overlay(order, server, record["ready"]["ready"])
    if not (order.front and order.key_file):
        return record
    try:
        key = Path(order.key_file).read_text(encoding="utf-8").strip()
    except OSError as error:
        return {**record, "key": f"{order.key_file}: {(error.strerror or str(error)).lower()}"}
    return {**record, "front": _front(order.front, order.model, key), "shown": _shown(server, key)}


def _overlay(order: Order, server: Server, ready: bool) -> dict[str, Any]:
    """After an answer, if there can be one: a server that has decoded nothing has left nothing out."""
    if ready:
        complete(server, "Count to ten.", DECODED, ASKED)
    return overlay.look(str(order.overlay), order.cgroup, time.time() if ready else None)


def _front(url: str, model: str, key: str) -> dict[str, Any]:
    answers = {}
    for name, given in (("without", None), ("wrong", f"{key}x"), ("right", key)):
        seen = complete(Server(url, model, given), "Say one word.", 1, ASKED)
        answers[name] = {"status": seen.status, "generated": seen.generated, "why": seen.reason}
    # What is behind it may answer, or not: that is the server's verdict.
    answers["other path"] = {"status": page(Server(url, model, key), "/server_info").status}
    return answers


def _shown(server: Server, key: str) -> list[str]:
    """Where the key can be seen: command lines of all processes, and the server's own pages."""
    found = [path for path in PAGES if key in page(server, path).text]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if key.encode() in path.read_bytes():
                found.append(f"the command line of process {path.parent.name}")
        except OSError:
            continue
    return found
