"""What the placement of threads is worth, on this machine: python -m bench.placement [--variant avx512_base] ...

One expert layer of the real shape on kt-kernel's own extension, under ktfleet's plan for this machine and three
arrangements that lose, in one process, the rounds of all of them interleaved. Prints GB/s of weights and how many times
slower each is than the plan, with 95 % intervals. Needs the kt-kernel wheel for this Python, in FOLDER or installed.
"""

from __future__ import annotations

from dataclasses import asdict

from bench import layers
from ktfleet.plan import trial


def main() -> None:
    """Measure and print."""
    here = layers.machine()
    parser = layers.options(__doc__, here)
    parser.add_argument("--ab", action="store_true", help="where the other threads run, instead of what loses")
    asked = parser.parse_args()
    arms = trial.others(here) if asked.ab else trial.losing(here)
    layers.measured(here, asked, [asdict(arm) for arm in arms])


if __name__ == "__main__":
    main()
