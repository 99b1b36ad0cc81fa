"""A few rates into a median with its interval. Pure: the same numbers give the same interval."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """Tokens a second: the median of `runs` runs, its bootstrap interval, and (largest - smallest) / median."""

    median: float
    low: float
    high: float
    spread: float
    runs: int

    def __str__(self) -> str:
        inner = f"{self.low:.1f}-{self.high:.1f}, {self.runs} runs, spread {self.spread:.1%}"
        return f"{self.median:.1f} tok/s ({inner})"


def summarise(rates: Sequence[float]) -> Rate:
    """At least one rate. The interval is the percentile bootstrap of the median (Efron 1979)."""
    dice = random.Random(len(rates))
    medians = sorted(median(dice.choices(rates, k=len(rates))) for _ in range(RESAMPLES))
    outside = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    middle = median(rates)
    return Rate(middle, medians[outside], medians[-1 - outside], (max(rates) - min(rates)) / middle, len(rates))
