"""What `trial.py` prints, as frozen types. Times in microseconds a layer and token, bandwidths in GB/s of weights."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.trial import SCHEMA

__all__ = ["SCHEMA", "Arm", "Ratio", "Record"]


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Ratio(Frozen):
    """A median over the rounds, and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


class Arm(Frozen):
    """One arrangement. workers: of each node. unpinned: workers that may run on more than one CPU. times_slower: than
    the first arm, round by round."""

    name: str
    workers: tuple[int, ...]
    unpinned: tuple[str, ...]
    rounds_us: tuple[float, ...]
    median_us: float
    gb_s: float
    times_slower: Ratio

    def __str__(self) -> str:
        pinned = f", {len(self.unpinned)} of them unpinned" if self.unpinned else ""
        workers = f"{'+'.join(map(str, self.workers))} workers{pinned}"
        speed = f"{self.median_us:.0f} us a layer, {self.gb_s:.1f} GB/s"
        rounds = f"{len(self.rounds_us)} rounds"
        return f"{self.name}: {speed}, {self.times_slower} times the first one's time ({workers}; {rounds})"


class Record(Frozen):
    """The whole trial. `why`: the reason that there are no arms, else empty. said: warnings of kt-kernel."""

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    why: str = ""
    said: tuple[str, ...] = ()
    variant: str = ""
    kernel: str = ""
    finite: bool = True
    arms: tuple[Arm, ...] = ()

    def __str__(self) -> str:
        """For people: an arm a line, the first one being what the others are compared with."""
        if self.why:
            return f"nothing was measured: {self.why}"
        about = f"{self.kernel} of {self.variant}, {self.order.get('experts')} experts, one token a call"
        strange = () if self.finite else ("the result is no number: this kernel computes garbage here",)
        return "\n".join((about, *strange, *map(str, self.arms)))
