"""How the lab says what takes its time."""

from __future__ import annotations

import time
from collections.abc import Callable

Progress = Callable[[str, float, float], None]
"""Called about once a second with a step's name, the seconds it has taken and about how many it takes in all."""


def silent(step: str, seconds: float, of_about: float) -> None:
    """Say nothing."""


class Stopwatch:
    """Seconds since it was made, told to a Progress."""

    def __init__(self, progress: Progress, step: str, of_about: float) -> None:
        self._progress, self._step, self._of_about = progress, step, of_about
        self._start = time.monotonic()
        self.tick()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._start

    def tick(self) -> None:
        """Tell how far the step is."""
        self._progress(self._step, self.seconds, self._of_about)
