"""What `canary.py` prints, as frozen types. Texts are what the model wrote; results what its code returned."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.canary import SCHEMA
from ktfleet.measure.decode_record import Ready

__all__ = ["SCHEMA", "Asked", "Ready", "Record", "Reference", "Run"]


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Run(Frozen):
    """How the code of an answer ended (canary.run), and what each case gave: ["returned", value] or ["raised", why]."""

    ended: str
    why: str = ""
    results: tuple[Any, ...] = ()


class Reference(Frozen):
    """What the unquantised server answered."""

    text: str
    run: Run


class Asked(Frozen):
    """One question: the stream's verdict, the answer, the same asked again, and the code's results."""

    task: str
    verdict: str = "ok"
    reason: str = ""
    kind: str = ""
    finish: str | None = None
    attempts: int = 1
    text: str = ""
    reasoning: str = ""
    again: str | None = None
    run: Run
    reference: Reference | None = None


class Record(Frozen):
    """The whole measurement. `sandbox`: why no code could be run, empty: it could. `stopped`: why it ended early."""

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    sandbox: str = ""
    ready: Ready
    asked: tuple[Asked, ...] = ()
    stopped: str | None = None
