"""What of the server is to be true on a host, for the drift check. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, jobs, readback
from ktfleet.plan.claim import Claim
from ktfleet.plan.places import FRONT_UNIT, SERVER_PROGRESS, SERVER_STARTED, SERVER_UNIT
from ktfleet.plan.server.changes import NOT_RUNNING, ready, reasons

LAUNCH, READY, FRONT = "server's start", "server is ready", "server's front"


def claims(plan: Plan, state: HostState) -> Iterator[Claim]:
    """It runs, was started from what is wanted now, and has generated a token. checks/server.py asks for more."""
    if plan.server is None:
        return
    unread = readback.unread_unit(SERVER_UNIT, state) or readback.unread_text(SERVER_STARTED, state)
    found = reasons(plan, state)
    why = "it holds its command line, environment, packages and weights as they were when it was started"
    yield _claim(LAUNCH, unread, not found, "; ".join(found), "running, from what is wanted now", why)
    if unread is None and NOT_RUNNING not in found:
        why = "a server that loads, or has said that it is of no use, serves nobody"
        unread = readback.unread_text(SERVER_PROGRESS, state)
        yield _claim(READY, unread, ready(state), "no token yet, or a fatal line", "a token, and no fatal line", why)
    if plan.fronted:
        unread = readback.unread_unit(FRONT_UNIT, state)
        why = "clients reach the server through it"
        yield _claim(FRONT, unread, jobs.at_work(FRONT_UNIT, state), NOT_RUNNING, "running", why)


def _claim(key: str, unread: str | None, good: bool, seen: str, wanted: str, why: str) -> Claim:
    if unread:
        return Claim(key, None, "nothing", wanted, f"it could not be read: {unread}")
    return Claim(key, good, wanted if good else seen, wanted, why)
