"""The weights: the data disk, the checkpoint on it, and what the server reads."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan
from ktfleet.plan.places import CONVERT_UNIT, DOWNLOAD_UNIT
from ktfleet.plan.weights import changes
from ktfleet.pyinfra_api import operations, waiting


@deploy("Data disk")
def mount_data(plan: Plan) -> None:
    """Mount it now and at every boot. It is never formatted."""
    operations.apply(plan, changes.add_to_fstab, name="Mount it at every boot")
    operations.apply(plan, changes.mount, name="Mount it")
    operations.apply(plan, changes.own, name="Give a fresh one to the service's user")


@deploy("Weights")
def download(plan: Plan) -> None:
    """Start to get what is missing, or go on with it. Nobody waits: `convert` does."""
    operations.tell(plan, changes.skipped, name="Say what is skipped")
    operations.apply(plan, changes.install_tools, name="Install git and rsync, where needed")
    operations.apply(plan, changes.prepare, name="Place the program and its units")
    operations.apply(plan, changes.start_download, name="Start the download")


@deploy("Converted weights")
def convert(plan: Plan) -> None:
    """Wait for the download, then for the conversion, which needs the card and the server's environment."""
    operations.tell(plan, changes.not_converted, name="Say what is skipped")
    operations.apply(plan, changes.start_download, name="Go on with the download")
    waiting.wait(plan, DOWNLOAD_UNIT, changes.nothing_to_download, name="Wait for the download")
    operations.apply(plan, changes.start_conversion, name="Start the conversion")
    waiting.wait(plan, CONVERT_UNIT, changes.nothing_to_convert, name="Wait for the conversion")
