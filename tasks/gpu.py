"""The card: its driver, the toolkit, and what keeps both working."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.plan.gpu import changes
from ktfleet.pyinfra_api import operations


@deploy("GPU driver")
def install(plan: Plan) -> None:
    """Nothing is installed before all of it can be; the module is loaded before what needs it."""
    operations.tell(plan, changes.skipped, name="Say what is skipped")
    operations.apply(plan, changes.fetch_keyring, name="Fetch the key of NVIDIA's repository")
    operations.apply(plan, changes.add_repository, name="Add NVIDIA's repository")
    operations.apply(plan, changes.install, name="Install driver, toolkit and compilers")
    operations.apply(plan, changes.blacklist, name="Keep Linux' own drivers off the card")
    operations.apply(plan, changes.load, name="Load the module")
    operations.apply(plan, changes.persist, name="Keep the driver's state")
    operations.apply(plan, changes.limit_power, name="Limit the card's power")
