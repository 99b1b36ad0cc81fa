"""The boot: the kernel command line (opt-in), what is applied at every boot, and the reboot."""

from __future__ import annotations

from pyinfra.api import deploy

from ktfleet.plan import Plan, changes, places
from ktfleet.pyinfra_api import operations


@deploy("Kernel")
def tune(plan: Plan) -> None:
    """Place what takes effect at boot."""
    operations.apply(plan, changes.place(places.WRITE_SYSFS), name="Place the sysfs writer")
    operations.apply(plan, changes.enable_boot_unit, name="Run it at boot")
    operations.apply(plan, changes.write_command_line, name="Set the kernel command line")


@deploy("Reboot")
def reboot_if_needed(plan: Plan) -> None:
    """Reboot if the running command line or driver is not the one of the next boot."""
    operations.reboot_if_needed(plan, name="Reboot if only that helps")
