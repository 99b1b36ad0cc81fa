"""What `server.py` prints, as frozen types."""

from __future__ import annotations

from pydantic import Field

from ktfleet.measure.decode_record import Frozen, Ready
from ktfleet.measure.overlay_record import Seen
from ktfleet.measure.server import SCHEMA

__all__ = ["SCHEMA", "Answer", "Record"]


class Answer(Frozen):
    """Of the front. status: HTTP's, None without an answer. generated: whether a token came."""

    status: int | None = None
    generated: bool = False
    why: str = ""


class Record(Frozen):
    """The whole measurement. front: "without" a key, with a "wrong" and the "right" one, and an "other path" with it.

    key: why it could not be read. shown: where it can be seen; None: nobody looked. overlay: None: not asked for.
    """

    schema_version: int = Field(alias="schema")
    ready: Ready
    front: dict[str, Answer] | None = None
    key: str | None = None
    shown: tuple[str, ...] | None = None
    overlay: Seen | None = None
