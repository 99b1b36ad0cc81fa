"""Why a host has to reboot: its command line, or the driver of its card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ktfleet.host.state import HostState
from ktfleet.plan import command_line
from ktfleet.plan.files import render
from ktfleet.plan.gpu.wanted import stand_ins
from ktfleet.plan.places import NOUVEAU_BLACKLIST

if TYPE_CHECKING:
    from ktfleet.plan import Plan


def reasons(plan: Plan, state: HostState) -> tuple[str, ...]:
    """Everything that only a reboot brings. Empty: none is needed."""
    return (*command_line.reboot_reasons(plan, state), *card_reasons(plan, state))


def card_reasons(plan: Plan, state: HostState) -> tuple[str, ...]:
    """Another driver holds the card although it is blacklisted, or the module is not the one on disk."""
    if plan.driver is None:
        return ()
    loaded, on_disk, found = state.nvidia.loaded, state.nvidia.on_disk, []
    held = stand_ins(state)
    if held and state.files.get(NOUVEAU_BLACKLIST) == render(plan, NOUVEAU_BLACKLIST).sha256:
        found.append(f"the card's driver: running {', '.join(held)}, next boot nvidia")
    if loaded is not None and on_disk is not None and loaded != on_disk:
        found.append(f"the NVIDIA module: loaded {loaded}, on disk {on_disk}")
    if _for_another_kernel(plan, state):
        found.append(f"the NVIDIA module: none for {state.kernel.release}, next boot {state.boot.next_kernel}")
    return tuple(found)


def _for_another_kernel(plan: Plan, state: HostState) -> bool:
    """The driver is installed, but only for a kernel that does not run yet."""
    there, boot = state.packages.installed, state.boot
    installed = plan.driver is not None and all(name in there for name in plan.driver.driver)
    absent = state.nvidia.loaded is None and state.nvidia.on_disk is None
    return installed and absent and boot.next_kernel not in (None, state.kernel.release)
