"""The server's environment: one known set of packages, built beside the one in use, proven, then switched over."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.plan.overlay import changes as overlay
from ktfleet.plan.places import STACK_UNIT
from ktfleet.plan.stack import changes
from ktfleet.pyinfra_api import operations, stack, waiting


@deploy("Server's environment")
def install(plan: Plan) -> None:
    """After the driver, which the proof needs, and its reboot."""
    operations.tell(plan, changes.skipped, name="Say what is skipped")
    operations.apply(plan, changes.prepare, name="Place the program and its unit")
    operations.apply(plan, overlay.place, name="Place what the server loads of ktfleet")
    stack.provide(plan, name="Place uv and the lock")
    operations.apply(plan, changes.start, name="Start the installation")
    waiting.wait(plan, STACK_UNIT, changes.nothing_to_build, name="Wait for the installation")
    stack.switch(plan, name="Prove it and switch over")
