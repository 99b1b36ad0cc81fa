"""What `api.py` prints, as frozen types."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.api import SCHEMA

__all__ = ["SCHEMA", "Call", "Record", "Try"]


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Call(Frozen):
    """A tool call of the model. arguments: JSON, if it is right."""

    name: str
    arguments: str


class Try(Frozen):
    """What came back. error: what the client raised, else None. Texts are cut."""

    error: str | None = None
    models: tuple[str, ...] = ()
    text: str = ""
    reasoning: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    calls: tuple[Call, ...] = ()


class Record(Frozen):
    """The whole measurement. `why`: the reason that there are no tries, else empty. client: its version."""

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    why: str = ""
    client: str = ""
    tries: dict[str, Try] = Field(default_factory=dict)
