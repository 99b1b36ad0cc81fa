"""The decode rate of the running server, with prefill apart, compared with what this recipe is known for.

A deploy of its own: `pyinfra inventory/ws.py checks/decode.py`. It takes some minutes and wants the server for itself.
Nothing is written on the host but the measurement, below /usr/local/lib/ktfleet.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import decode
from ktfleet.pyinfra_api.admission import admit


@deploy("Decode rate")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host that is slower than it should be, or hangs in a long prompt."""
    decode.check_decode(plan, again, name="Measure the decode rate and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
