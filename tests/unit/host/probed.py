"""What the tests of the probe share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ktfleet.host import probe
from ktfleet.host.state import HostState

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
SMALL: dict[str, Any] = {"cores": 2}
"""8 CPUs: what most tests need, and quick to write."""
NOT_RECORDED = (
    "glibc",
    "python",
    "cpu_dma_latency_us",
    "clock_synchronised",
    "packages.locked_by",
)
"""What only a running host knows."""


def state(root: Path, **asked: Any) -> HostState:
    """What the plan gets to see."""
    return HostState.model_validate_json(json.dumps(probe.collect(str(root), **asked), allow_nan=False))
