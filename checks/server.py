"""The server: it runs, was started from what is wanted now, answers with a token, does so with the recipe's clamp and
top-k, and only to who has the key.

A deploy of its own: `pyinfra inventory/ws.py checks/server.py`. Nothing is written on the host but the measurement,
below /usr/local/lib/ktfleet.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import server
from ktfleet.pyinfra_api.admission import admit


@deploy("Server")
def check(plan: Plan) -> None:
    """Fail the host whose server is another one, or does not answer. Without one it is skipped."""
    server.check_server(plan, name="Ask the server and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host))
