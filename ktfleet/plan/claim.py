"""What a drift check has to judge that is neither a setting nor a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """`good` None: it could not be read, or is not applicable; `why` says which and why."""

    key: str
    good: bool | None
    seen: str
    wanted: str
    why: str
