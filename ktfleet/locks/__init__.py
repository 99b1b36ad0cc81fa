"""The locks of the server's environment, and what they are resolved from: stack.in (`scripts/lock stack`)."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

PYTHONS = ("3.11", "3.12")
"""kt-kernel has wheels for these only."""


def path(python: str) -> Path:
    """The lock for one of PYTHONS."""
    return Path(str(files(__name__).joinpath(f"stack-{python}.txt")))
