"""The server: for now, what the host adds to its unit."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes
from ktfleet.pyinfra_api import operations


@deploy("Service")
def prepare(plan: Plan) -> None:
    """Place what takes effect when the server starts."""
    operations.apply(plan, changes.prepare_server, name="Prepare the server's unit")
