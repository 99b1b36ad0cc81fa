"""The server: validated while the old one runs, started only when something that it is made of has changed."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.plan.places import SERVER_UNIT
from ktfleet.plan.server import changes
from ktfleet.pyinfra_api import operations, server, waiting


@deploy("Server")
def serve(plan: Plan) -> None:
    """Last of what is set up: it needs everything else."""
    operations.tell(plan, changes.skipped, name="Say what is skipped")
    operations.apply(plan, changes.stop_unwanted, name="Stop what is no longer wanted")
    operations.apply(plan, changes.prepare, name="Place the program")
    operations.apply(plan, changes.validate, name="Try what can be tried beforehand")
    operations.apply(plan, changes.enable, name="Place the launch and its unit")
    server.start(plan, name="Start it")
    operations.apply(plan, changes.install_front, name="Install the front's package")
    server.place_key(plan, name="Bring the key")
    operations.apply(plan, changes.serve_front, name="Start the front")
    waiting.wait(plan, SERVER_UNIT, changes.nothing_to_wait_for, name="Wait for its first token")
