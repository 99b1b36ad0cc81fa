"""Work in a process of its own: a wrong instruction or a hang ends only that, and what it prints disturbs nobody.

Only the standard library: it runs on the host.
"""

from __future__ import annotations

import json
import os
import select
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

SAID_BYTES = 4000
"""Of the end of what it printed: as much is kept."""


@dataclass(frozen=True)
class Outcome:
    """`value`: what the work returned; None: nothing, and `why` says so. `said`: the last lines that it printed."""

    value: Any
    why: str
    said: str

    @property
    def warnings(self) -> list[str]:
        """Of what it printed, the lines that tell of something missing or failed."""
        lines = self.said.splitlines()
        return sorted({line for line in lines if "not found" in line or "fail" in line.lower()})[:20]


def apart(work: Callable[[], Any], limit_s: float) -> Outcome:
    """Do it and wait, without looking in between. The caller may have no threads: it is forked. Never raises."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            _work(work, answer, told)
        in_time = _ended(child, limit_s)
        _, status = os.waitpid(child, 0)
        for file in (answer, told):
            file.seek(0)
        text, said = answer.read(), told.read()[-SAID_BYTES:].decode(errors="replace").strip()
    if not in_time:
        return Outcome(None, f"it ran for more than {limit_s:g} s", said)
    if os.WIFSIGNALED(status):
        return Outcome(None, f"killed by {signal.Signals(os.WTERMSIG(status)).name}", said)
    told_back = json.loads(text) if text else {"why": f"it ended by itself, with {os.WEXITSTATUS(status)}"}
    return Outcome(told_back.get("value"), told_back.get("why", ""), said)


def _work(work: Callable[[], Any], answer: IO[bytes], told: IO[bytes]) -> None:
    """In the child; it ends here, whatever happens: what is the parent's is not cleaned up twice."""
    try:
        for stream in (1, 2):
            os.dup2(told.fileno(), stream)
        result = json.dumps({"value": work()})
    except BaseException as error:
        result = json.dumps({"why": " ".join(f"{type(error).__name__}: {error}".split())[:300]})
    answer.write(result.encode())
    answer.flush()
    os._exit(0)


def _ended(child: int, limit_s: float) -> bool:
    process = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([process], [], [], limit_s)
    finally:
        os.close(process)
    if not ready:
        os.kill(child, signal.SIGKILL)
    return bool(ready)
