"""Work in a process of its own: every way to end is an answer."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from typing import Any

import pytest

from ktfleet.measure.apart import apart


def dies() -> Any:
    faulthandler.disable()  # pytest's would print this end as one of the tests
    os.kill(os.getpid(), signal.SIGILL)


def raises() -> Any:
    os.write(1, b"a warning\n")
    raise RuntimeError("no room")


def test_what_it_returns_comes_back_and_what_it_prints_is_apart() -> None:
    outcome = apart(lambda: os.write(1, b"hello\n") and {"a": 1}, 20)
    assert (outcome.value, outcome.why, outcome.said) == ({"a": 1}, "", "hello")


@pytest.mark.parametrize(("work", "limit", "why", "said"), [
    (dies, 20, "killed by SIGILL", ""),
    (raises, 20, "RuntimeError: no room", "a warning"),
    (lambda: os._exit(3), 20, "it ended by itself, with 3", ""),
    (lambda: time.sleep(60), 0.2, "it ran for more than 0.2 s", ""),
    (lambda: object(), 20, "TypeError: Object of type object is not JSON serializable", ""),
])  # fmt: skip
def test_every_other_end_has_its_reason(work: Any, limit: float, why: str, said: str) -> None:
    outcome = apart(work, limit)
    assert (outcome.value, outcome.why, outcome.said) == (None, why, said)
