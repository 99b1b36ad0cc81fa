"""Whether a host is still busy with itself: its first boot, or somebody's package manager."""

from __future__ import annotations

from ktfleet.host.state import HostState


def busy(state: HostState) -> str | None:
    """Who is at work, None: nobody. A reboot now would leave packages half installed."""
    if state.cloud_init == "running":
        return "cloud-init"
    return state.packages.locked_by
