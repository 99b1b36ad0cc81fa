"""What `decode.py` prints, as frozen types: a run a line, rates in tokens a second, times in seconds."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ktfleet.measure.decode import SCHEMA

__all__ = ["SCHEMA", "Ready", "Record", "Run", "Streams"]


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Ready(Frozen):
    """Whether /health and a first token came, how long it took, why not."""

    ready: bool
    waited_s: float
    why: str = ""


class Run(Frozen):
    """One stream: the numbers of a stream.Reading. `foreign`: others' requests meanwhile, None: the server tells none.

    `wanted`: the length of the prompt that was aimed at.
    """

    prompt: str = ""
    verdict: str
    reason: str = ""
    kind: str = ""
    tokens: int | None = None
    prompt_tokens: int | None = None
    ttft_s: float | None = None
    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None
    approximate: bool = False
    low_tok_s: float | None = None
    high_tok_s: float | None = None
    token_gap_ms: dict[str, float] | None = None
    longest_gap_s: float | None = None
    finish: str | None = None
    foreign: int | None = None
    wanted: int | None = None


class Streams(Frozen):
    """Several streams at once, and what they had together (prefill included)."""

    count: int
    verdict: str
    reason: str = ""
    together_tok_s: float | None = None
    runs: tuple[Run, ...] = ()
    foreign: int | None = None


class Record(Frozen):
    """The whole measurement. `stopped`: why it ended early. `order`: what was to be measured."""

    schema_version: int = Field(alias="schema")
    order: dict[str, Any] = Field(default_factory=dict)
    model: str | None = None
    ready: Ready
    in_flight_before: int | None = None
    runs: tuple[Run, ...] = ()
    ladder: tuple[Run, ...] = ()
    streams: tuple[Streams, ...] = ()
    probe: Run | None = None
    stopped: str | None = None
