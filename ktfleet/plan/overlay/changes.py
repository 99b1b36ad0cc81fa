"""What has to be done to a host for the overlay: shell commands, as in plan/changes.py."""

from __future__ import annotations

from ktfleet.host.state import HostState
from ktfleet.plan import Plan
from ktfleet.plan.changes import Commands, write
from ktfleet.plan.files import File
from ktfleet.plan.overlay.wanted import folder, sources


def files(plan: Plan) -> tuple[File, ...]:
    """What has to lie there; nothing where no environment could load it, or the recipe does not need it."""
    if plan.overlay is None or plan.stack is None:
        return ()
    return tuple(File(f"{folder()}/{name}", text, "0644") for name, text in sources().items())


def place(plan: Plan, state: HostState) -> Commands:
    """Write what differs. Older ones stay: they are small, and a running server's unit may still name one."""
    return tuple(write(file) for file in files(plan) if state.files.get(file.path) != file.sha256)
