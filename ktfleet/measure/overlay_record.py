"""What the running server's overlay tells in its status file (ktfleet/runtime/status.py writes it), as frozen types."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
"""Version of the JSON. A file of another version is not read: its meaning may differ."""


class Frozen(BaseModel):
    """Immutable; keys of a newer overlay that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Asked(Frozen):
    """What the overlay was told. (ktfleet/runtime/settings.py)"""

    method: str
    layers: int
    experts: int
    per_token: int
    top_k: int
    clamp: float | None = None
    least: int | None = None
    share: float | None = None


class Status(Frozen):
    """pid: the process whose layers are hooked. folder: where the overlay was loaded from. layers: those hooked.
    clamped: layer -> the limit that its kernel was made with. slots: layer -> (experts that the router picked, experts
    computed) of decoded tokens since the start. whole_passes: passes in which none was left out. written: unix time.
    """

    schema_version: int = Field(validation_alias="schema")
    pid: int
    folder: str
    settings: Asked
    layers: tuple[int, ...]
    clamped: dict[int, float]
    slots: dict[int, tuple[int, int]]
    whole_passes: int
    written: float
