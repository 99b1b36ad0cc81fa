"""Whether the host's file systems can be written to, and hold what will be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import stack
from ktfleet.plan.gpu import installation
from ktfleet.problem import Problem
from ktfleet.recipes import GIB

MIB = 1024**2
LEAST_FREE = {
    "/": GIB,
    "/boot": 200 * MIB,
    "/etc": 50 * MIB,
    "/opt": 50 * MIB,
    "/usr/local": 50 * MIB,
    "/var": 200 * MIB,
}
"""Where ktfleet writes -> bytes that must be free. Enough for files, a journal and one initramfs (an estimate)."""

TOOLKIT = {"/usr/local": 7 * GIB, "/var": 4 * GIB}
"""The same while the CUDA toolkit is still to come: its files, and apt's downloads (estimates)."""


def problems(state: HostState, config: Workstation) -> tuple[Problem, ...]:
    """File systems that are read-only or too full, and a data folder that is not on a disk of its own."""
    return (*_read_only(state), *_full(state, config), *_data_folder(state, config))


def asked_paths(config: Workstation | None = None) -> tuple[str, ...]:
    """The paths whose file systems the probe has to look at."""
    data = (config.data.mount,) if config and config.data else ()
    return (*LEAST_FREE, *data)


def _by_mount(state: HostState) -> dict[str, list[str]]:
    """mount point -> the paths of LEAST_FREE on it."""
    found: dict[str, list[str]] = {}
    for path in LEAST_FREE:
        if path in state.mounts:
            found.setdefault(state.mounts[path].mount, []).append(path)
    return found


def _read_only(state: HostState) -> Iterator[Problem]:
    for mount, paths in _by_mount(state).items():
        held = state.mounts[paths[0]]
        if held.read_only:
            do = "look for disk errors with `dmesg`, repair them, then remount it or reboot"
            what = f"the file system of {', '.join(paths)} is read-only"
            yield Problem(what, f"{held.device} mounted ro on {mount}", "a writable one", do)


def _full(state: HostState, config: Workstation) -> Iterator[Problem]:
    coming = _coming(state, config)
    for mount, paths in _by_mount(state).items():
        held = state.mounts[paths[0]]
        wanted = max(*(LEAST_FREE[path] for path in paths), sum(coming[path] for path in paths))
        if held.free is not None and held.free < wanted and not held.read_only:
            do = "free some: `journalctl --vacuum-size=500M`, `apt-get clean`, `apt-get autoremove`"
            yield Problem(f"too little free space on {mount}", _mib(held.free), f"at least {_mib(wanted)}", do)


def _coming(state: HostState, config: Workstation) -> Counter[str]:
    """Path -> bytes of what is still to be installed there."""
    made = installation(state, config)
    toolkit = TOOLKIT if made and made.toolkit not in state.packages.installed else {}
    return Counter(toolkit) + Counter(stack.room(state, config))


def _data_folder(state: HostState, config: Workstation) -> Iterator[Problem]:
    data = config.data
    held = state.mounts.get(data.mount) if data and not data.mounted_by_us else None
    if data and held and held.mount == "/":
        do = "mount the data disk there: its line in /etc/fstab went with the old system"
        what = "the data folder resolves to the root file system"
        yield Problem(what, f"{data.mount} on {held.device}", "a disk that survives a reinstall", do)


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"
