"""What `bandwidth.py` prints, as frozen types. Bandwidths in GB/s (10^9 bytes a second)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.bandwidth import SCHEMA

__all__ = ["SCHEMA", "Kernel", "Record", "Run"]


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Kernel(Frozen):
    """The fastest repetition and the median one."""

    best: float
    median: float
    reps: int


class Run(Frozen):
    """One configuration. kind: "matrix" (all CPUs of a node at one node's memory), "sweep" (some of them at their own),
    "together" (all nodes, each at its own). huge_bytes: how much of `bytes` was in huge pages. wrong: the sum that was
    read is not what was written."""

    kind: str
    cpu_node: int | None = None
    memory_node: int | None = None
    threads: int = 0
    read: Kernel | None = None
    triad: Kernel | None = None
    huge_bytes: int = 0
    bytes: int = 0
    wrong: bool = False
    error: str | None = None

    @property
    def local(self) -> bool:
        """Whether all CPUs of a node read their own memory."""
        return self.kind == "matrix" and self.cpu_node == self.memory_node


class Record(Frozen):
    """The whole measurement. `why`: the reason that there are no runs, else empty."""

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    why: str = ""
    runs: tuple[Run, ...] = ()
