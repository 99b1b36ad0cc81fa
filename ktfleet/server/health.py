"""Whether the server is ready, and whether it goes on generating. A thread beside the one that holds the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ktfleet.measure.ask import Server, complete, page
from ktfleet.measure.serving import in_flight, wait_until_ready
from ktfleet.measure.stream import Limits
from ktfleet.problem import Problem
from ktfleet.server.job import Job

LOOK_S = 30.0
"""Between two looks at a ready server."""
HEALTH_S = 30.0
"""sglang's /health generates a token when nobody else does, and waits up to 20 s for it."""
TOKEN_EVERY = 10
"""Looks from one token of our own to the next: other engines' /health says nothing about tokens."""
HUNG_S = 1200.0
"""Without a sign of life for so long it is started again. As sglang's own watchdog here: a prompt of the whole context
may keep it silent for many minutes."""

_LOG = "read `journalctl -u ktfleet-server`"


class Health(threading.Thread):
    """ready is called once. problem: why the server has to end."""

    def __init__(self, job: Job, ready: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.problem: Problem | None = None
        self._server = Server(job.url, job.model)
        self._limit_s = job.ready_s
        self._ready = ready

    def run(self) -> None:
        """Until there is a problem; an error of ours is one too, or nobody would look after the server any more."""
        try:
            self.problem = self._wait() or self._watch()
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
            self.problem = Problem("the server can no longer be watched", seen, "no error", "report it to ktfleet")

    def _wait(self) -> Problem | None:
        found = wait_until_ready(self._server, self._limit_s)
        if found["ready"]:
            self._ready()
            return None
        seen = f"{found['why']} after {found['waited_s']:.0f} s"
        # An answer that is wrong has a kind; a server that is not there, or loads, has none of its own.
        up = found["kind"] not in ("", "loading")
        what = "the server is up and generates nothing" if up else "the server is not ready in time"
        return Problem(what, seen, f"/health and one token within {self._limit_s} s", _LOG)

    def _watch(self) -> Problem:
        alive, looks = time.monotonic(), 0
        while True:
            time.sleep(LOOK_S)
            looks += 1
            why = self._look(looks % TOKEN_EVERY == 0)
            now = time.monotonic()
            if not why:
                alive = now
            elif now - alive > HUNG_S:
                seen = f"{why} for {now - alive:.0f} s"
                return Problem("the server generates nothing any more", seen, "a sign of life", _LOG)

    def _look(self, token: bool) -> str:
        """Why there is no sign of life; empty: there is one."""
        answer = page(self._server, "/health", HEALTH_S)
        if answer.status != 200:
            return answer.why or f"/health says {answer.status}"
        # Our own request would be a foreign one to whoever measures, and wait behind those that run.
        if not token or in_flight(self._server):
            return ""
        seen = complete(self._server, "Say one word.", 1, Limits(first_s=120, idle_s=60, total_s=180))
        return "" if seen.generated else seen.reason or "its answer has no token"
