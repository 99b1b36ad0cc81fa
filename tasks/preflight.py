"""Before anything is touched: judge the whole inventory; then keep what was there."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes
from ktfleet.pyinfra_api import operations
from ktfleet.pyinfra_api.admission import admit

__all__ = ["admit", "remember"]


@deploy("Before the first change")
def remember(plan: Plan) -> None:
    """Record on the host every setting's value from before our first change."""
    operations.apply(plan, changes.remember, name="Keep the present values")
