"""The main process of the server's unit: starts the server, tells how far it is, and tells systemd that it lives.

sglang speaks to no supervisor: it is ready minutes after it listens, and one that hangs keeps running. This holds it:
passes its log on and reads it, passes signals on, and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ktfleet.problem import Problem
from ktfleet.progress import Progress
from ktfleet.server.health import Health
from ktfleet.server.job import Job
from ktfleet.server.lines import Lines

PROGRESS, STARTED = "progress.json", "started.json"
"""In the runtime folder: how far it is; what it was started from."""
PING_S = 10.0
GRACE_S = 30.0
"""From our SIGTERM to a hung server until SIGKILL."""
READ = 1 << 16
OOM_KILLS = Path("/sys/fs/cgroup/system.slice/ktfleet-server.service/memory.events")


class Supervisor:
    """One server, from its start to its end."""

    def __init__(self, job: Job, runtime: Path) -> None:
        self._progress_file = runtime / PROGRESS
        self._progress = Progress(self._progress_file)
        self._lines = Lines(job.layers)
        self._job = job
        self._ready = self._fatal = self._stopped = False
        self._kills = _oom_kills()

    def run(self) -> int:
        """Until the server ends; its exit status, 1 when it had to be ended."""
        self._progress.begin("starting", 0)
        _notify("STATUS=starting")
        reader, writer = os.pipe()
        job = self._job
        try:
            child = subprocess.Popen(
                job.argv, env=dict(job.environment), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, cwd="/"
            )
        except OSError as error:
            seen = f"{job.argv[0]}: {(error.strerror or str(error)).lower()}"
            return self._end(Problem("the server cannot be started", seen, "a program", "run deploy.py again"), 1)
        os.close(writer)
        with self._passing_signals_to(child):
            return self._hold(child, reader)

    def _hold(self, child: subprocess.Popen[bytes], reader: int) -> int:
        health = Health(self._job, self._is_ready)
        health.start()
        pinged = 0.0
        while child.poll() is None and health.problem is None:
            self._read(reader, 1.0)
            now = time.monotonic()
            if now - pinged >= PING_S:
                pinged = now
                _notify("WATCHDOG=1")
        ended = child.poll()
        if ended is None:
            _end(child)
            return self._end(health.problem, 1)
        while self._read(reader, 0.0):
            pass
        if self._stopped:
            self._progress_file.unlink(missing_ok=True)
            return 0
        how = f"signal {-ended}" if ended < 0 else f"exit status {ended}"
        return self._end(self._out_of_memory() or self._lines.ended(how), 128 - ended if ended < 0 else ended or 1)

    def _read(self, reader: int, wait_s: float) -> bool:
        """What the server says: on to the journal, and looked at. False: nothing came."""
        if not select.select([reader], [], [], wait_s)[0]:
            return False
        data = os.read(reader, READ)
        if not data:  # it closed its output, and may still run
            time.sleep(wait_s)
            return False
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        before = self._lines.step
        self._lines.feed(data)
        if self._lines.problem and not self._fatal:
            # It may go on: whoever waits for it is told, and it is never ready.
            self._fatal = True
            self._end(self._lines.problem, 1)
        elif self._lines.step != before and not self._ready and not self._fatal:
            self._tell(str(self._lines.step))
        return True

    def _tell(self, step: str) -> None:
        self._progress.begin(step, 0)
        _notify(f"STATUS={step}")

    def _is_ready(self) -> None:
        self._ready = True
        if self._fatal:
            return
        self._progress.step = "the server is ready"
        self._progress.end()
        _notify("STATUS=ready")

    def _end(self, problem: Problem | None, status: int) -> int:
        if problem is not None:
            self._progress.end((problem,))
            print(f"ktfleet: {problem}", flush=True)
        return status

    def _out_of_memory(self) -> Problem | None:
        kills = _oom_kills() - self._kills
        if kills <= 0:
            return None
        seen = f"{kills} of its processes killed"
        do = "look at `journalctl -k` and `numastat -m` for what holds it, then run deploy.py again"
        return Problem("the server was killed for memory", seen, "room for the weights on each node", do)

    @contextlib.contextmanager
    def _passing_signals_to(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        def passed(number: int, _: Any) -> None:
            self._stopped = self._stopped or number in (signal.SIGTERM, signal.SIGINT)
            child.send_signal(number)

        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
        before = {number: signal.signal(number, passed) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _end(child: subprocess.Popen[bytes]) -> None:
    """What it started goes with the unit."""
    child.terminate()
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _oom_kills() -> int:
    try:
        events = dict(line.split() for line in OOM_KILLS.read_text().splitlines())
        return int(events.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def _notify(text: str) -> None:
    """To systemd, where it listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection, contextlib.suppress(OSError):
        connection.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        connection.send(text.encode())
