"""How far the work is: a small JSON file that deploy.py reads while it waits."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ktfleet.problem import Problem

EVERY_S = 1.0
WINDOW_S = 30.0
"""The rate is that of the last so many seconds."""


@dataclass
class Progress:
    """Bytes done of a total (0: nobody knows it), told in `path` at most once a second. Threads may share it."""

    path: Path | None
    step: str = ""
    done: int = 0
    total: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _written: float = 0.0

    def begin(self, step: str, total: int, done: int = 0) -> None:
        """Start another step, with so much of it there already."""
        with self._lock:
            self.step, self.total, self.done, self._written = step, total, done, 0.0
            self._samples.clear()
        self.add(0)

    def add(self, count: int) -> None:
        """So many bytes more (or less: what was wrong is fetched again)."""
        self.set(self.done + count)

    def set(self, done: int) -> None:
        """So many bytes in all."""
        with self._lock:
            self.done = done
            now = time.monotonic()
            if now - self._written >= EVERY_S:
                self._written = now
                self._tell("running", now)

    def end(self, problems: Iterable[Problem] = ()) -> None:
        """The last word."""
        lines = [str(problem) for problem in problems]
        with self._lock:
            self._tell("failed" if lines else "done", time.monotonic(), lines)

    @contextmanager
    def watching(self, size: Callable[[], int]) -> Iterator[None]:
        """While another program works: ask how many bytes there are."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(2 * EVERY_S):
                self.set(size())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _tell(self, state: str, now: float, problems: Iterable[str] = ()) -> None:
        self._samples.append((now, self.done))
        while now - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()
        begun, had = self._samples[0]
        seconds = now - begun
        rate = max(0, round((self.done - had) / seconds)) if seconds >= EVERY_S else None
        left = round((self.total - self.done) / rate) if rate and self.total else None
        said = {"state": state, "step": self.step, "done": self.done, "total": self.total, "rate": rate, "left_s": left}
        if self.path is not None:
            new = self.path.with_name(f".{self.path.name}.new")
            new.write_text(json.dumps({"schema": 1, **said, "problems": list(problems)}) + "\n", encoding="utf-8")
            new.replace(self.path)


def size_of(folder: Path) -> int:
    """Bytes of the regular files below a folder; what vanishes meanwhile is not counted."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118 - half a million of them
            except OSError:
                continue
    return total
