"""What the running server's overlay tells of itself, as it lies in its file, and who runs. Only the standard library.

It decides nothing and never raises: `judge/overlay/` judges.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from ktfleet.measure.unit import processes

READ = 1 << 20
"""Characters; 43 layers are 5,000."""
RENEWED_S, LOOK_S = 10.0, 0.2
"""Until the file is of after our request: the overlay writes every 2 s, also while it computes."""


def look(status: str, cgroup: str, after: float | None = None) -> dict[str, Any]:
    """The file's text, or None and why. pids: the unit's processes, None: not known. now: this host's unix time.

    after: unix time; wait for a file that was written later, but not for long.
    """
    path = Path(status)
    if after is not None:
        _wait(path, after)
    told: dict[str, Any] = {"text": None, "why": "", "pids": None}
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            told["text"] = file.read(READ)
    except OSError as error:
        told["why"] = f"{status}: {(error.strerror or str(error)).lower()}"
    with contextlib.suppress(OSError, ValueError):
        told["pids"] = processes(cgroup)
    return {**told, "now": time.time()}


def _wait(path: Path, after: float) -> None:
    limit = time.monotonic() + RENEWED_S
    while time.monotonic() < limit:
        with contextlib.suppress(OSError):  # a first one may come
            if path.stat().st_mtime > after:
                return
        time.sleep(LOOK_S)
