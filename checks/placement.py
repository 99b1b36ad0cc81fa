"""Where the running server's threads and memory are: each worker alone on its core, the experts on their nodes.

A deploy of its own, beside a running server: `pyinfra inventory/ws.py checks/placement.py`. It reads /proc and writes
nothing on the host but the measurement, below /usr/local/lib/ktfleet.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import placement
from ktfleet.pyinfra_api.admission import admit


@deploy("Placement")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host whose workers share a core, or whose experts are not on their node."""
    placement.check_placement(plan, again, name="Read the placement of the server and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
