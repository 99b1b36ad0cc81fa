"""The server's OpenAI interface: chat, completions, streams, tool calls and reasoning, each by the official client.

A deploy of its own, beside a running server: `pyinfra inventory/ws.py checks/api.py`. Nothing is written on the host
but the measurement, below /usr/local/lib/ktfleet; it needs the server's environment there.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import api
from ktfleet.pyinfra_api.admission import admit


@deploy("API")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host whose server answers a client otherwise than its recipe promises."""
    api.check_api(plan, again, name="Try the server's interface and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
