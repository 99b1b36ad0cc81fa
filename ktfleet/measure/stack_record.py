"""What `stack.py` prints: what an environment of the server holds and which of its proofs came to their end, as frozen
types. A proof that is None was not asked for, or is about packages that the lock has not.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
"""Version of the JSON. A record with another version is not read: its meaning may differ."""


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Nothing(Frozen):
    """Of a proof that only has to come to its end."""


class Kernel(Frozen):
    """Which extension kt-kernel took: kt_kernel.__cpu_variant__."""

    variant: str


class Payload(Frozen):
    """sgl_kernel's joined objects: their sizes in bytes by name, below `folder`."""

    version: str
    sizes: dict[str, int]
    folder: PurePath


class Pair(Frozen):
    """Versions of two modules that were imported into one process."""

    tvm_ffi: str
    tilelang: str


class Overlaid(Frozen):
    """What the overlay would do, in its own words."""

    asked: str


class Card(Frozen):
    """torch's view of the card. error: of a bf16 product beside the CPU's, relative L2."""

    name: str
    capability: tuple[int, int]
    architectures: tuple[str, ...]
    error: float


class Computed(Frozen):
    """Relative L2 beside torch on the CPU."""

    error: float


class Counted(Frozen):
    """Wrong numbers of 1000."""

    wrong: int


class Built(Frozen):
    """How many compilers could run at a time."""

    jobs: int


Values = TypeVar("Values", bound=Frozen)


class Outcome(Frozen, Generic[Values]):
    """How one proof ended. exit and signal None: it was ended after `limit_s` seconds. said: its last lines."""

    seconds: float
    limit_s: float
    exit: int | None = None
    signal: str | None = None
    values: Values | None = None
    said: str = ""

    @property
    def ended(self) -> str:
        """In words: "SIGILL", "exit 1", "no end within 180 s"."""
        if self.signal is not None:
            return self.signal
        return f"no end within {self.limit_s:g} s" if self.exit is None else f"exit {self.exit}"

    @property
    def proven(self) -> Values | None:
        """What it found, if it came to its end. A process can still die after it has written that."""
        return self.values if self.exit == 0 else None


class Proofs(Frozen):
    """By the name that the program knows them by."""

    kt_kernel: Outcome[Kernel] | None = None
    payload: Outcome[Payload] | None = None
    tilelang: Outcome[Pair] | None = None
    server: Outcome[Nothing] | None = None
    overlay: Outcome[Overlaid] | None = None
    hooks: Outcome[Nothing] | None = None
    torch: Outcome[Card] | None = None
    sgl_kernel: Outcome[Computed] | None = None
    triton: Outcome[Counted] | None = None
    fp8_gemm: Outcome[Built] | None = None


class Record(Frozen):
    """The whole measurement.

    user: who made it. gpu: whether the card was asked for. locked, installed: distributions by normalised name; two
    installed versions of one are the trace of an interrupted upgrade. damaged: what is wrong with a distribution's
    files.
    """

    schema_version: int = Field(validation_alias="schema")
    python: str
    prefix: str
    user: str
    gpu: bool
    locked: dict[str, str]
    installed: dict[str, tuple[str, ...]]
    damaged: dict[str, str]
    proofs: Proofs
