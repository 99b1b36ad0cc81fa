"""The coding canary: does the running server write right answers, at any speed?

A deploy of its own: `pyinfra inventory/ws.py checks/canary.py`. The code in the answers runs on the host in a sandbox
(bubblewrap: own user, no network, nothing to write); without it the verdicts are inconclusive.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import canary
from ktfleet.pyinfra_api.admission import admit


@deploy("Canary")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host whose server writes nonsense."""
    canary.check_canary(plan, again, name="Ask the canary's questions and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
