"""What measurements need of a host: packages. The measurements themselves are in checks/."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, measuring
from ktfleet.pyinfra_api import operations


@deploy("Measuring")
def prepare(plan: Plan) -> None:
    """Before the first of them."""
    operations.tell(plan, measuring.skipped, name="Say what is skipped")
    operations.apply(plan, measuring.install, name="Install what measurements need")
