"""The account that serves."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, account
from ktfleet.pyinfra_api import operations


@deploy("Service account")
def create(plan: Plan) -> None:
    """Before anything that is to belong to it."""
    operations.apply(plan, account.create, name="Make user, group and home folder")
