"""What `experts.py` prints, as frozen types. Times in microseconds a layer and token, GB/s of weights (10^9 bytes)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.experts import SCHEMA

__all__ = ["SCHEMA", "Record"]


class Record(BaseModel):
    """The whole measurement. `why`: the reason that there is nothing else, else empty.

    distance: relative L1 of one token from what numpy computes with the same roundings; None: `distance_why`.
    workers: the CPUs of each. rounds_us: the mean of each round. said: warnings of kt-kernel.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    why: str = ""
    variant: str = ""
    kernel: str = ""
    distance: float | None = None
    distance_why: str = ""
    finite: bool = True
    workers: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    rounds_us: tuple[float, ...] = ()
    gb_s: float = 0.0
    peak_bytes: int = 0
    said: tuple[str, ...] = ()
