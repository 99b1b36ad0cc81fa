"""Which errors of a server pass, how long to wait, and what to say of those that do not."""

from __future__ import annotations

import http.client
import re
import threading
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass

from ktfleet.problem import Problem
from ktfleet.weights.folders import Failed
from ktfleet.weights.safetensors import shown

TRIES = 8
"""Without a byte of progress between them."""

WRONG_TRIES = 3
"""Of a whole file with another hash: it may have gigabytes."""

LONGEST_WAIT_S = 60.0
LONGEST_ASKED_WAIT_S = 900.0
"""A hub may ask for patience (Retry-After); at most so much of it is had."""

AGAIN = "run deploy.py again: it goes on where it stopped"


class Stopped(Exception):
    """Another file of the same work has failed."""


class WrongBytes(Exception):
    """A whole file whose hash is another one."""


@dataclass
class Attempt:
    """One try of several: what passes is waited for, what does not raises Failed."""

    place: str
    with_token: bool
    stop: threading.Event
    number: int = 0
    progressed: bool = False

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if error is None:
            return False
        wait = _wait(error, self.number)
        if wait is None:
            refusal = _refusal(error, self.place, self.with_token)
            if refusal is None:
                return False
            raise Failed(refusal) from None
        self.number = 0 if self.progressed else self.number + 1
        if self.number >= (WRONG_TRIES if isinstance(error, WrongBytes) else TRIES):
            raise Failed(_gave_up(error, self.place)) from None
        if self.stop.wait(wait):
            raise Stopped from None
        return True


def attempts(place: str, with_token: bool, stop: threading.Event) -> Iterator[Attempt]:
    """Try until one of them breaks the loop. `place`: what is wanted from where, for the problem's line."""
    attempt = Attempt(place, with_token, stop)
    while True:
        yield attempt


def _wait(error: BaseException, number: int) -> float | None:
    """Seconds until the next try; None: another try would not help."""
    patience = min(2.0**number, LONGEST_WAIT_S)
    if isinstance(error, urllib.error.HTTPError):
        if error.code not in (408, 416, 429) and error.code < 500:
            return None
        asked = error.headers.get("Retry-After") or ""
        return min(float(asked), LONGEST_ASKED_WAIT_S) if re.fullmatch(r"\d{1,6}", asked) else patience
    if isinstance(error, (WrongBytes, urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)):
        return patience
    return None


def _refusal(error: BaseException, place: str, with_token: bool) -> Problem | None:
    if not isinstance(error, urllib.error.HTTPError):
        return None
    seen = f"{error.code} {shown(error.reason)}"
    if error.code in (401, 403):
        given = "another token" if with_token else "a token"
        do = f"accept the model's terms there, and put {given} that may read it into weights.source.token_file"
        return Problem(f"the hub refuses {place}", seen, "to be let in", do)
    do = "correct the recipe's [checkpoint], or weights.source.endpoint"
    return Problem(f"the hub does not give {place}", seen, "the file", do)


def _gave_up(error: BaseException, place: str) -> Problem:
    if isinstance(error, WrongBytes):
        do = "see what stands between this host and the hub (a proxy, a mirror)"
        return Problem(f"other bytes: {place}", f"another hash, {WRONG_TRIES} times", "the hub's", do)
    reason = getattr(error, "reason", None) or error
    seen = f"{shown(str(reason) or type(reason).__name__)}, {TRIES} times without progress"
    return Problem(f"cannot be had: {place}", seen, "an answer", AGAIN)
