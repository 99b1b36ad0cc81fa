"""What leaving experts out is worth, on this machine: python -m bench.overlay [--variant avx512_base] ...

One expert layer of the real shape on kt-kernel's own extension, under ktfleet's plan for this machine: all experts that
the router picks, and one less each time, -1 in the others' place, as the overlay leaves them out. In one process, the
rounds interleaved. Prints how long each takes beside all of them, with 95 % intervals, and the straight line through
them. Needs the kt-kernel wheel for this Python, in FOLDER or installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import correlation, linear_regression, median

from bench import layers
from ktfleet import recipes
from ktfleet.measure.trial import ratio
from ktfleet.measure.trial_record import Ratio
from ktfleet.plan import trial


@dataclass(frozen=True)
class Line:
    """The straight line through (experts kept, median microseconds), by least squares.

    each: microseconds that an expert adds. fixed: of the time of all experts, what the line has at none; the median of
    the rounds' own lines, with its interval. farthest: of that time, the most that a median is off the line. r2: the
    share of the medians' variance that the line explains.
    """

    each: float
    fixed: Ratio
    farthest: float
    r2: float

    def __str__(self) -> str:
        low, high = self.fixed.low * 100, self.fixed.high * 100
        return (
            f"{self.each:.1f} us an expert; without any {self.fixed.median * 100:.1f} % ({low:.1f} to {high:.1f}) of "
            f"the time with all; {self.farthest * 100:.1f} % of it off the line at most, R2 {self.r2:.5f}"
        )


def line(kept: Sequence[int], rounds: Sequence[Sequence[float]]) -> Line:
    """rounds: of each number of experts, the first being all of them, microseconds in every round."""
    medians = [median(each) for each in rounds]
    slope, start = linear_regression(kept, medians)
    off = max(abs(seen - (start + slope * count)) for count, seen in zip(kept, medians, strict=True))
    fixed = [linear_regression(kept, each).intercept / each[0] for each in zip(*rounds, strict=True)]
    return Line(slope, Ratio(**ratio(fixed)), off / medians[0], correlation(kept, medians) ** 2)


def main() -> None:
    """Measure and print."""
    here = layers.machine()
    asked = layers.options(__doc__, here).parse_args()
    width = recipes.load(layers.RECIPES[asked.method]).experts.per_token
    kept, plan = range(width, 0, -1), asdict(trial.planned(here))
    arms = [{**plan, "name": f"{count} of {width} experts", "kept": count} for count in kept]
    record = layers.measured(here, asked, arms)
    print(line(kept, [arm.rounds_us for arm in record.arms]))


if __name__ == "__main__":
    main()
