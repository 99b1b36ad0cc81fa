"""What of the overlay is to be true on a host, for the drift check. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, readback
from ktfleet.plan.claim import Claim
from ktfleet.plan.overlay.changes import files

KEY = "overlay's files"


def claims(plan: Plan, state: HostState) -> Iterator[Claim]:
    """All of its files, in one. What it does in the server, judge/overlay/ judges."""
    wanted = files(plan)
    if not wanted or plan.overlay is None:
        return
    why = "the server's processes load them at its next start"
    unread = next((f"{file.path}: {gap}" for file in wanted if (gap := readback.unread_file(file.path, state))), None)
    if unread:
        yield Claim(KEY, None, "nothing", plan.overlay.folder, f"it could not be read: {unread}")
        return
    wrong = [file.path for file in wanted if state.files[file.path] != file.sha256]
    seen = f"{len(wrong)} of {len(wanted)} differ, {wrong[0]} first" if wrong else plan.overlay.folder
    yield Claim(KEY, not wrong, seen, plan.overlay.folder, why)
