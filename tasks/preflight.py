"""Before anything is touched: judge the whole inventory; then keep what was there."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, apt, changes
from ktfleet.pyinfra_api import operations
from ktfleet.pyinfra_api.admission import admit

__all__ = ["admit", "release", "remember"]


@deploy("Before the first change")
def remember(plan: Plan) -> None:
    """Wait until the host is done with itself; then record on it what is there before our first change."""
    operations.settle(plan, name="Wait for its own packages and first boot")
    operations.apply(plan, changes.remember, name="Keep the present values and files")
    operations.apply(plan, apt.finish_installation, name="Finish an interrupted installation")


@deploy("After the last change")
def release() -> None:
    """Let another run change this host again."""
    operations.release(name="Give the lock back")
