"""What a person should know of a host although it stops nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.recipes import GIB


def notes(state: HostState) -> tuple[str, ...]:
    """One line each; nothing about what was not read."""
    return (*_reboot(state), *_clock(state), *_swap(state))


def _reboot(state: HostState) -> Iterator[str]:
    if state.reboot_required:
        yield f"a reboot is wanted there by {', '.join(state.reboot_required)}: ktfleet reboots for its own reasons"


def _clock(state: HostState) -> Iterator[str]:
    if state.clock_synchronised is False:
        yield "the clock is not synchronised (yet): downloads over TLS may fail"


def _swap(state: HostState) -> Iterator[str]:
    used = sum(swap.used for swap in state.swaps or ())
    if used:
        yield f"{used / GIB:.1f} GiB are swapped out: something ran short of memory before"
