"""Check everything, then put the overlay in place, in one process of the server. What is wrong ends the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from ktfleet.problem import Problem, Refused
from ktfleet.runtime import pins, settings
from ktfleet.runtime.settings import Settings
from ktfleet.runtime.upstream import PINS

LIMIT_S = 120
"""Of the kernels' test, which takes 5 s: most of it is the import of torch, from a cold disk."""

FOLDER = str(Path(__file__).parents[2])
"""Where this overlay lies: its name tells the version."""

_DO = "prove the server's environment with checks/stack.py; do not serve with it"


def start() -> None:
    """What the package's import does in the server. Ends the process with one line a problem."""
    try:
        asked = check()
        from ktfleet.runtime import hooks

        hooks.install(asked)
    except Refused as refused:
        raise SystemExit("\n".join(f"ktfleet overlay: {problem}" for problem in refused.problems)) from None
    except Exception as error:
        seen = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        problem = Problem("the overlay cannot be put in place", seen, "none of this", _DO)
        raise SystemExit(f"ktfleet overlay: {problem}") from error
    print(f"ktfleet overlay active in process {os.getpid()}: {asked}; from {FOLDER}", file=sys.stderr, flush=True)


def check() -> Settings:
    """All that can be known without the card: settings, upstream's text, routing, kernels. Raises Refused."""
    began = time.monotonic()
    asked = settings.read(os.environ.get(settings.VARIABLE))
    held = upstream()
    from ktfleet.runtime.selftest_routing import problems

    found = tuple(problems(asked))
    if found:
        raise Refused(found)
    kernels(asked)
    took = time.monotonic() - began
    print(f"ktfleet overlay: {held} pins hold, self-test passed, {took:.1f} s", file=sys.stderr, flush=True)
    return asked


def upstream() -> int:
    """How many pins hold. A changed one that matters refuses, any other is a line in the log."""
    drifted = tuple(pins.drift(PINS, pins.folders(frozenset(pin.package for pin in PINS))))
    vital = tuple(problem for pin, problem in drifted if pin.vital)
    if vital:
        raise Refused(vital)
    for _, problem in drifted:
        print(f"ktfleet overlay: warning: {problem}", file=sys.stderr, flush=True)
    return len(PINS) - len(drifted)


def kernels(asked: Settings) -> None:
    """Run the kernels' test, in a process of its own. Raises Refused."""
    program = str(Path(__file__).with_name("selftest_kernels.py"))
    limit = () if asked.clamp is None else ("--limit", f"{asked.clamp}")
    try:
        done = subprocess.run(
            [sys.executable, "-I", program, asked.method, *limit],
            capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused((_kernel_problem(asked, f"no answer within {LIMIT_S} s"),)) from None
    answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
    wrong = json.loads(answers[-1])["wrong"] if answers else []
    if done.returncode == 0 and answers:
        return
    last = (done.stderr.strip().splitlines() or [""])[-1]
    raise Refused((_kernel_problem(asked, "; ".join(wrong) or f"exit {done.returncode}: {last}"[:300]),))


def _kernel_problem(asked: Settings, seen: str) -> Problem:
    what = f"the self-test of kt-kernel's {asked.method} kernel"
    return Problem(what, seen, "experts left out to the bit, and the clamp where it is asked for", _DO)
