"""The server's environment: what is installed is what the lock says, it can be imported, and the card can be used.

A deploy of its own: `pyinfra inventory/ws.py checks/stack.py`. Nothing is written on the host but the measurement
itself, and what the packages unpack and compile in the home of the service's user.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import stack
from ktfleet.pyinfra_api.admission import admit


@deploy("Server's environment")
def check(plan: Plan) -> None:
    """Fail the host whose environment is not as its lock says, or does not work. Without one it is skipped."""
    stack.check_stack(plan, name="Prove the server's environment")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host))
