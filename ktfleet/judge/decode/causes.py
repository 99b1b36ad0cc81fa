"""Why a rate is low, when another check has found something: a table, the likeliest cause first."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ktfleet.verdict import Verdict

TABLE: tuple[tuple[str, str, str], ...] = (
    ("placement", r"", "the workers are not where the plan puts them"),
    ("bandwidth", r"", "memory is slower than it should be"),
    ("experts", r"", "the expert kernel is slower than it should be"),
    ("drift", r"transparent_hugepage|nr_hugepages", "the weights lie in small pages"),
    ("drift", r"scaling_governor|no_turbo|energy_performance|uncore", "the CPUs are not at their full clock"),
    ("drift", r"numa_balancing|zone_reclaim", "the kernel moves the weights about"),
    ("gpu", r"clock|throttl|power|width|generation", "the card is slowed down"),
    ("drift", r"", "a setting is not as wanted"),
    ("gpu", r"", "the card is not as wanted"),
)
"""(check, pattern of the verdict's key, what it means for the rate). Sources: the published collapse of unpinned
workers (ktransformers #2088), a lost channel at -30 to -40 %, huge pages and clocks: docs/settings.md."""


def likely(others: Mapping[str, tuple[Verdict, ...]]) -> tuple[str, str] | None:
    """Cause and remedy by this host's failed verdicts of other checks; None when they explain nothing."""
    for check, pattern, meaning in TABLE:
        for verdict in others.get(check, ()):
            if verdict.result == "fail" and re.search(pattern, verdict.key):
                return f"{meaning}: {verdict.difference}", verdict.do
    return None
