"""The GPU: which card, its driver, its link under load, its errors, its toolkit, and a kernel that computes right.

A deploy of its own: `pyinfra inventory/ws.py checks/gpu.py`. It keeps the card busy for two seconds. Nothing is
written on the host but the measurement itself, below /usr/local/lib/ktfleet.
"""

from __future__ import annotations

from pyinfra import host, inventory
from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.pyinfra_api import gpu
from ktfleet.pyinfra_api.admission import admit


@deploy("GPU")
def check(plan: Plan, again: bool = False) -> None:
    """Fail the host whose GPU is not as its configuration says. Without one it is skipped."""
    gpu.check_gpu(plan, again, name="Measure the GPU and judge")


# pyinfra executes a deploy file without a module name of its own; an import gives it one.
if __name__ == "builtins":
    check(admit(inventory, host), again=True)
