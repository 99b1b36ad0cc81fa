"""What a folder of weights holds, as far as it was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ktfleet.problem import Problem


@dataclass(frozen=True)
class File:
    """One file: its size in bytes, and where its float32 scales lie (begin, end)."""

    size: int
    scales: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Contents:
    """Problems, and the files (path below the folder -> file) that make up the weights."""

    problems: tuple[Problem, ...]
    files: Mapping[str, File] = field(default_factory=dict)
