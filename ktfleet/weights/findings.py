"""Thousands of equal findings as few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from ktfleet.problem import Problem

AGAIN = "make them again (deploy.py does, when this folder is moved away)"


def per_layer(found: Mapping[int, list[str]], of_each: int, verb: str, noun: str, wanted: str) -> Iterable[Problem]:
    """Names by layer: one problem for each run of neighbouring layers with as many of them.

    of_each: as many as that is the whole layer. The first name of each run is shown.
    """
    run: list[int] = []
    layers = sorted(found)
    for layer, following in pairwise((*layers, None)):
        assert layer is not None
        run.append(layer)
        if following != layer + 1 or len(found[following]) != len(found[layer]):
            yield _run(run, found, of_each, verb, noun, wanted)
            run = []


def _run(run: list[int], found: Mapping[int, list[str]], of_each: int, verb: str, noun: str, wanted: str) -> Problem:
    each = found[run[0]]
    layers = f"layer {run[0]}" if len(run) == 1 else f"layers {run[0]}-{run[-1]}"
    count = len(each) * len(run)
    what = f"all {count} {noun} of {layers}" if len(each) == of_each else f"{count} {noun} of {layers}"
    return Problem(f"{what} {verb}", f"first {each[0]}", wanted, AGAIN)


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first few of some names, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return f"{', '.join(every[:most])}{more}"
