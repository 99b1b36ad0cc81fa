"""Time for tests of what waits."""


class Clock:
    """A clock that only moves when somebody sleeps."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now
