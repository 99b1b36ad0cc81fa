"""What of the server's environment is to be true on a host, for the drift check. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, readback
from ktfleet.plan.claim import Claim
from ktfleet.plan.places import STACK
from ktfleet.plan.stack.wanted import built, in_use

KEY = "server's environment"


def claims(plan: Plan, state: HostState) -> Iterator[Claim]:
    """The server starts from the wanted one. What is in it, checks/stack.py proves."""
    made = plan.stack
    if made is None:
        return
    folder = made.job.folder
    unread = readback.unread_link(STACK, state) or readback.unread_text(made.job.complete, state)
    if unread:
        yield Claim(KEY, None, "nothing", folder, f"it could not be read: {unread}")
        return
    seen = state.links.get(STACK) or "none"
    if seen == folder and not built(made, state):
        seen = "it, not complete"
    yield Claim(KEY, in_use(made, state), seen, folder, "it is what the lock names, built to its end, and proven")
