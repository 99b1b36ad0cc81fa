"""Measurements of GPUs, from tests/fixtures/gpu/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ktfleet.measure.gpu_record import Record

FOLDER = Path(__file__).parent / "fixtures" / "gpu"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def plain(name: str) -> dict[str, Any]:
    """One fixture as plain data."""
    data: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return data


def record(name: str) -> Record:
    """One fixture, typed."""
    return Record.model_validate(plain(name))
