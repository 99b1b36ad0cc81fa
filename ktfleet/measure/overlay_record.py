"""What the running server's overlay tells in its status file, as frozen types.

ktfleet/runtime/status.py writes it, overlay.py reads it.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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
    active: what is in effect, in one line.
    """

    schema_version: int = Field(validation_alias="schema")
    pid: int
    folder: str
    active: str
    settings: Asked
    layers: tuple[int, ...]
    clamped: dict[int, float]
    slots: dict[int, tuple[int, int]]
    whole_passes: int
    written: float


class Seen(Frozen):
    """What lay there. text: the file's; None: none, and `why`. pids: the unit's processes then; None: not known. now:
    the host's unix time."""

    text: str | None = None
    why: str = ""
    pids: tuple[int, ...] | None = None
    now: float

    def read(self) -> tuple[Status | None, str]:
        """The status, or why there is none that this version can read."""
        if self.text is None:
            return None, self.why
        try:
            data = json.loads(self.text)
            version = data.get("schema") if isinstance(data, dict) else None
            if isinstance(version, int) and version != SCHEMA:
                return None, f"it is of version {version}, this ktfleet reads {SCHEMA}"
            return Status.model_validate(data), ""
        except (ValueError, ValidationError, RecursionError):
            return None, f"what its file holds is none: {self.text[:40]!r}"
