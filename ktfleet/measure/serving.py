"""The server from outside: is it ready, who else uses it. Only the standard library: it runs on the host."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ktfleet.measure.ask import Server, complete, page
from ktfleet.measure.stream import Limits

IN_FLIGHT = re.compile(
    r"^(?:sglang:num_(?:running|queue)_reqs|vllm:num_requests_(?:running|waiting)"
    r"|llamacpp:requests_(?:processing|deferred))(?:\{[^}]*\})? +([0-9.e+]+)$",
    re.MULTILINE,
)
"""What servers publish about requests in flight, at /metrics."""
FIRST_LOOK_S, LOOK_S = 0.1, 0.5
PAUSE_S = 2.0


def in_flight(server: Server) -> int | None:
    """Requests that the server works on or holds; None when it does not tell."""
    answer = page(server, "/metrics", 5.0)
    found = IN_FLIGHT.findall(answer.text) if answer.status == 200 else []
    return round(sum(map(float, found))) if found else None


@dataclass
class Watch:
    """What was seen beside our own requests: the most foreign ones, None when the server never told."""

    own: int
    foreign: int | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self, server: Server) -> None:
        """Once, then again and again until it is over."""
        pause = FIRST_LOOK_S
        while not self._over.wait(pause):
            pause = LOOK_S
            seen = in_flight(server)
            if seen is not None:
                self.foreign = max(self.foreign or 0, seen - self.own)


@contextmanager
def watched(server: Server, own: int) -> Iterator[Watch]:
    """Look who else uses the server while `own` requests of ours run."""
    watch = Watch(own)
    thread = threading.Thread(target=watch.look, args=(server,), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch._over.set()
        thread.join()


def wait_until_ready(server: Server, limit_s: float) -> dict[str, Any]:
    """Ready is /health with 200 and one generated token: /v1/models answers long before."""
    began, why = time.monotonic(), "it was never asked"
    while True:
        answer = page(server, "/health")
        if answer.status == 200:
            seen = complete(server, "Say one word.", 1, Limits(first_s=120, idle_s=60, total_s=180))
            if seen.verdict != "error" and seen.generated:
                return {"ready": True, "waited_s": time.monotonic() - began, "why": "", "kind": ""}
            empty = seen.verdict != "error"
            why, kind = ("its answer has no token", "empty") if empty else (seen.reason, seen.kind)
        else:
            why = answer.why or f"/health says {answer.status}"
            kind = "loading" if answer.status == 503 else ""
        # A wrong key or model does not become right by waiting.
        hopeless = kind in ("unauthorised", "unknown-model", "refused")
        if hopeless or time.monotonic() - began > limit_s:
            return {"ready": False, "waited_s": time.monotonic() - began, "why": why, "kind": kind}
        time.sleep(PAUSE_S)


def model_name(server: Server) -> str | None:
    """The first model that the server says it has."""
    try:
        name = json.loads(page(server, "/v1/models").text)["data"][0]["id"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return name if isinstance(name, str) else None


def connect(url: str, model: str | None, key_file: str | None, extra: dict[str, Any]) -> Server:
    """The server of an order; the key comes from a file, so that no process list shows it. Raises OSError."""
    key = None
    if key_file:
        key = Path(key_file).read_text(encoding="utf-8").strip()
    server = Server(url, model or "default", key, tuple(extra.items()))
    named = model or model_name(server)
    return Server(url, named or "default", key, tuple(extra.items()))
