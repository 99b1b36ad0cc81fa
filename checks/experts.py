"""The expert kernel on this host, before any weights are there: the CPUs' share of a token, and that it computes right.

A deploy of its own: `pyinfra inventory/ws.py checks/experts.py`. It keeps the worker cores busy for less than a minute,
takes up to 8 GB of memory and measures nothing beside a running server. It needs the server's environment there.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import experts
from ktfleet.pyinfra_api.admission import admit


@deploy("Expert kernel")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host whose kernel computes something else, or cannot reach what was published."""
    experts.check_experts(plan, again, name="Measure the expert kernel and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
