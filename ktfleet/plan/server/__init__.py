"""The server as a service of the host: what it is to be, and why it is not (wanted, refusals, changes, proven)."""

from ktfleet.plan.server.refusals import problems
from ktfleet.plan.server.wanted import job, skipped

__all__ = ["job", "problems", "skipped"]
