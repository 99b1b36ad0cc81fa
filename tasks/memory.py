"""NUMA policy, swapping and huge pages."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes, places
from ktfleet.pyinfra_api import operations


@deploy("Memory")
def tune(plan: Plan) -> None:
    """Place the files for the next boot, then set the running values."""
    operations.apply(plan, changes.place(places.SYSCTLS, places.SYSFS["memory"]), name="Place the files")
    operations.apply(plan, changes.set_values("memory"), name="Set the running values")
