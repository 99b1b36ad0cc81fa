"""What of the server is to be true on a host, for the drift check. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, jobs, readback
from ktfleet.plan.claim import Claim
from ktfleet.plan.places import FRONT_UNIT, SERVER_STARTED, SERVER_UNIT
from ktfleet.plan.server.changes import NOT_RUNNING, ready, reasons

LAUNCH, READY, FRONT = "server's start", "server is ready", "server's front"


def claims(plan: Plan, state: HostState) -> Iterator[Claim]:
    """It runs, was started from what is wanted now, and has generated a token. checks/server.py asks for more."""
    if plan.server is None:
        return
    yield _launch(plan, state)
    why = "a server that loads, or has said that it is of no use, serves nobody"
    wanted = "a first token, and no fatal line"
    yield Claim(READY, ready(state), wanted if ready(state) else "not yet, or a fatal line", wanted, why)
    if plan.fronted:
        runs = jobs.at_work(FRONT_UNIT, state)
        yield Claim(FRONT, runs, "running" if runs else NOT_RUNNING, "running", "clients reach the server through it")


def _launch(plan: Plan, state: HostState) -> Claim:
    unread = readback.unread_text(SERVER_STARTED, state) or state.unreadable.get(SERVER_UNIT)
    wanted = "running, from what is wanted now"
    if unread:
        return Claim(LAUNCH, None, "nothing", wanted, f"it could not be read: {unread}")
    why = "it holds its command line, environment, packages and weights as they were when it was started"
    found = reasons(plan, state)
    return Claim(LAUNCH, not found, "; ".join(found) or wanted, wanted, why)
