"""The server's environment: from a lock with hashes, beside the one in use (wanted, refusals, changes)."""

from ktfleet.plan.stack.refusals import room
from ktfleet.plan.stack.wanted import Installation, folders, installation

__all__ = ["Installation", "folders", "installation", "room"]
