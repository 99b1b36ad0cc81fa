"""Memory bandwidth: each node against its channels in theory and against its twin, threads swept, all nodes at once.

A deploy of its own, before any weights are there: `pyinfra inventory/ws.py checks/bandwidth.py`. It keeps all CPUs busy
for half a minute, and measures nothing beside a running server. It needs a C compiler on the host.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import bandwidth
from ktfleet.pyinfra_api.admission import admit


@deploy("Bandwidth")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host whose memory is slower than its channels, or one node slower than the other."""
    bandwidth.check_bandwidth(plan, again, name="Measure the memory bandwidth and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
