"""What `placement.py` prints, as frozen types. Sizes in bytes; lists of CPUs as the kernel writes them: 0-3,8."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.placement import SCHEMA, WORKER

__all__ = ["SCHEMA", "Interrupt", "Memory", "Process", "Record", "Thread"]


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Thread(Frozen):
    """allowed: the CPUs where it may run. last_cpu: where it ran last."""

    tid: int
    name: str
    allowed: str
    last_cpu: int

    @property
    def worker(self) -> bool:
        """Whether it is one of kt-kernel's."""
        return WORKER.fullmatch(self.name) is not None

    @property
    def pool(self) -> int:
        """A worker's pool, which is the number of its node."""
        return int(self.name.split("_")[1])


class Memory(Frozen):
    """nodes: anonymous memory on each node, in pages of any size. huge: of it in transparent huge pages. hugetlb: of it
    in the reserved ones. swap: what is swapped out, which no node counts."""

    nodes: dict[int, int]
    huge: int
    hugetlb: int = 0
    swap: int = 0


class Process(Frozen):
    """memory: None where there is no worker, or `memory_why`."""

    pid: int
    name: str
    threads: tuple[Thread, ...]
    memory: Memory | None = None
    memory_why: str = ""

    @property
    def workers(self) -> tuple[Thread, ...]:
        """kt-kernel's threads of it."""
        return tuple(thread for thread in self.threads if thread.worker)


class Interrupt(Frozen):
    """allowed: the CPUs that may take it; effective: those that do. None: not told."""

    irq: int
    allowed: str | None = None
    effective: str | None = None


class Record(Frozen):
    """The whole measurement. `why`: the reason that there are no processes, else empty."""

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    why: str = ""
    processes: tuple[Process, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()
    interrupts_why: str = ""
