"""What the overlay is asked for: JSON in one variable of the server's environment. Standard library alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from ktfleet.problem import Problem, Refused

VARIABLE = "KTFLEET_OVERLAY"

METHODS = ("AMXINT4", "MXFP4")
"""kt-kernel's methods whose kernels the self-test knows: only with them is anything left out or clamped."""

DECODE_TOKENS = 8
"""A pass of up to so many tokens is decoding, as is every captured one: sglang does not tell the hook which it is."""


@dataclass(frozen=True)
class Settings:
    """method: kt-kernel's. layers, experts, per_token: of the model; the router picks per_token of the experts.
    clamp: the model's SwiGLU limit, to be put back; None: the method keeps it by itself, or the model has none.
    top_k: experts computed for each decoded token. least and share: how many are computed in any case, and what part
    of the token's weight each of the others needs; None: no more is left out than top_k says.
    counts: a file for how often each expert was computed, as --init-expert-location reads it; None: not counted.
    status: the file that tells what is in effect.
    """

    method: str
    layers: int
    experts: int
    per_token: int
    top_k: int
    status: str
    clamp: float | None = None
    least: int | None = None
    share: float | None = None
    counts: str | None = None

    @property
    def culls(self) -> bool:
        """Whether any expert that the router picks is left out."""
        return self.top_k < self.per_token or self.least is not None

    def __str__(self) -> str:
        clamp = "the method's own clamp" if self.clamp is None else f"clamp {self.clamp:g}"
        top = f"top {self.top_k} of {self.per_token} experts of a decoded token"
        more = "" if self.least is None else f" (down to {self.least}: the others need {self.share:g} of its weight)"
        return f"{self.method}, {clamp}, {top}{more}{', routing counted' if self.counts else ''}"


def read(text: str | None) -> Settings:
    """Every mistake at once. Raises Refused."""
    try:
        given = json.loads(text) if text else None
    except ValueError:
        given = None
    if not isinstance(given, dict):
        seen = "nothing" if not text else f"{text[:80]!r}"
        raise Refused((Problem(VARIABLE, seen, "a JSON object", "start the server as `ktfleet launch` prints it"),))
    found = tuple(Problem(f"{VARIABLE}: {key}", *rest) for key, *rest in _problems(given))
    if found:
        raise Refused(found)
    numbers = {name: float(given[name]) for name in ("clamp", "share") if given.get(name) is not None}
    return Settings(**{**given, **numbers})


_KNOWN = {field.name: field.default for field in fields(Settings)}
_DO = "start the server as `ktfleet launch` prints it"


def _problems(given: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for key in given.keys() - _KNOWN.keys():
        yield key, "an unknown key", f"one of {', '.join(_KNOWN)}", "remove it"
    right = set()
    for key, wanted in _WANTED.items():
        required = key in ("method", "layers", "experts", "per_token", "top_k", "status")
        if given.get(key) is None and not required:
            right.add(key)
        elif key not in given:
            yield key, "nothing", wanted, f"add it, or {_DO}"
        elif not _fits(key, given[key]):
            yield key, f"{given[key]!r}"[:80], wanted, f"correct it, or {_DO}"
        else:
            right.add(key)
    if right >= {"per_token", "top_k", "experts", "least", "share"}:
        yield from _disagreements(given)


_WANTED = {
    "method": f"one of {', '.join(METHODS)}",
    "layers": "a number of 1 or more",
    "experts": "a number of 1 or more",
    "per_token": "a number of 1 or more",
    "top_k": "a number of 1 or more",
    "status": "an absolute path",
    "clamp": "a number above 0",
    "least": "a number of 1 or more",
    "share": "a number above 0 and below 1",
    "counts": "an absolute path that ends with .pt",
}


def _fits(key: str, value: object) -> bool:
    if key == "method":
        return value in METHODS
    if key in ("status", "counts"):
        return isinstance(value, str) and value.startswith("/") and (key == "status" or value.endswith(".pt"))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if key in ("clamp", "share"):
        return value > 0 and (key == "clamp" or value < 1)
    return isinstance(value, int) and value >= 1


def _disagreements(given: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    per_token, top_k, least = given["per_token"], given["top_k"], given.get("least")
    if per_token > given["experts"]:
        yield "per_token", str(per_token), f"{given['experts']} at most, the experts there are", _DO
    if top_k > per_token:
        yield "top_k", str(top_k), f"{per_token} at most, what the router picks", _DO
    if (least is None) != (given.get("share") is None):
        yield "least", f"{least}", "least and share together, or neither", _DO
    elif least is not None and least > top_k:
        yield "least", str(least), f"{top_k} at most, as top_k", _DO
