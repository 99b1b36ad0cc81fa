"""What keeps a server a server: updates, the journal, the clock."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes, places
from ktfleet.pyinfra_api import operations


@deploy("System")
def tune(plan: Plan) -> None:
    """First apt's settings: what is installed later waits for its turn."""
    operations.apply(plan, changes.place(places.APT), name="Hold driver and kernel back")
    operations.apply(plan, changes.limit_journal, name="Limit the journal")
    operations.apply(plan, changes.set_values("system"), name="Synchronise the clock")
