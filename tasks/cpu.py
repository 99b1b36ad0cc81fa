"""The clocks, and interrupts kept off the worker CPUs."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes, places
from ktfleet.pyinfra_api import operations


@deploy("CPU")
def tune(plan: Plan) -> None:
    """Place the files for the next boot, then set the running values."""
    operations.apply(plan, changes.place(places.SYSFS["cpu"]), name="Place the files")
    operations.apply(plan, changes.set_values("cpu"), name="Set the running values")
    operations.apply(plan, changes.balance_interrupts, name="Keep interrupts off the worker CPUs")
