"""What a decode rate is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Setup:
    """What a rate belongs to: a figure of another setup says nothing."""

    method: str
    top_k: int
    hardware: str

    def __str__(self) -> str:
        return f"{self.method}, top-{self.top_k}, {self.hardware}"


@dataclass(frozen=True)
class Published:
    """A rate that somebody else measured. `date` in ISO 8601."""

    tok_s: float
    setup: Setup
    source: str
    date: str

    def __str__(self) -> str:
        return f"published {self.tok_s:g} ({self.source}, {self.date})"


@dataclass(frozen=True)
class Wanted:
    """What is known before the measurement.

    setup: of this host. share: of an expected rate that has to be reached; the default leaves 5 % for what differs
    between two machines of one kind. spread: the recipe's decode_spread. runs: fewest of each prompt. ceiling_tok_s:
    from this host's own bandwidth. history: earlier rates of this host with this setup, oldest first.
    """

    setup: Setup
    published: tuple[Published, ...] = ()
    share: float = 0.95
    spread: float = 0.05
    runs: int = 5
    ceiling_tok_s: float | None = None
    history: tuple[float, ...] = field(default=())

    @property
    def applicable(self) -> Published | None:
        """The figure for exactly this setup; of several the highest."""
        fitting = [one for one in self.published if one.setup == self.setup]
        return max(fitting, key=lambda one: one.tok_s, default=None)

    @property
    def usual(self) -> float | None:
        """What this host has had: the median of its last ten."""
        return median(self.history[-10:]) if self.history else None


def ceiling(read_gb_s: Iterable[float], bytes_per_token: int) -> float:
    """The most tokens a second that memory allows: every node reads its part of the experts, the slowest one last."""
    nodes = tuple(read_gb_s)
    return min(nodes) * len(nodes) * 1e9 / bytes_per_token
