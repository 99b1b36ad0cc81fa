"""Power: a server never sleeps."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes
from ktfleet.pyinfra_api import operations


@deploy("Power")
def tune(plan: Plan) -> None:
    """Mask what would put the machine to sleep."""
    operations.apply(plan, changes.set_values("power"), name="Mask the sleep targets")
