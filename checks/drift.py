"""Drift: every setting and every managed file, read back from the running host.

The last step of deploy.py, and a deploy of its own: `pyinfra inventory/ws.py checks/drift.py`.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import operations
from ktfleet.pyinfra_api.admission import admit


@deploy("Drift")
def check(plan: Plan) -> None:
    """Fail the host that is not as its plan says."""
    operations.check_drift(plan, name="Read every setting back")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host))
