"""What a host's state says about each setting, in a form that can be compared with the wanted value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from ktfleet.host.probe.reader import NO_MATCH
from ktfleet.host.probe.values import MISSING, NOT_A_LINK
from ktfleet.host.state import HostState
from ktfleet.plan.command_line import parameter
from ktfleet.plan.places import COMPACTED, IRQBALANCE_UNIT, SERVER_UNIT, TIME_SERVICES, unit_file
from ktfleet.plan.row import Row, Setting, Writer
from ktfleet.plan.settings import (
    COMPACTION,
    ENABLED,
    GLIBC_TUNABLES,
    MASKED,
    MEMORY_SWAP_MAX,
    NOT_ENABLED,
    NOT_MASKED,
    WAKE_LATENCY,
)

ABSENT = (MISSING, NO_MATCH, NOT_A_LINK)
"""The probe's reasons for a path that does not exist, a pattern that nothing matches, an ordinary unit file."""

_NOT_PROBED = "it was not probed"
_NOT_SET = "not set"


def normalised(text: str) -> str:
    """The chosen word of a list of choices ("always [madvise] never"), else the text with single spaces."""
    chosen = re.search(r"\[([^\]]+)\]", text)
    return chosen.group(1) if chosen else " ".join(text.split())


def values(row: Row, state: HostState) -> Mapping[str, str]:
    """place -> normalised value, for every place where the host has this setting. Empty: nowhere.

    Files of CPUs that are offline do not count: the kernel keeps some, and refuses to read or write them.
    """
    match row.writer:
        case Writer.SYSCTL | Writer.SYSFS:
            found = state.sysctl if row.writer is Writer.SYSCTL else state.sysfs
            return {place: normalised(found[place]) for place in _matching(found, row.key, state)}
        case _:
            value = None if unread(row, state) else _value(row, state)
            return {} if value is None else {row.key: value}


def _value(row: Row, state: HostState) -> str | None:
    """The value of a setting that stands in one place; None: the host has none."""
    match row.writer:
        case Writer.CMDLINE:
            return parameter(state.kernel.cmdline, row.key)
        case Writer.MASK:
            return MASKED if state.links[unit_file(row.key)] == "/dev/null" else NOT_MASKED
        case Writer.ENABLED:
            return ENABLED if any(state.links[link] for link in TIME_SERVICES) else NOT_ENABLED
        case Writer.APT:
            return None if state.apt is None else state.apt.get(row.key, _NOT_SET)
        case Writer.JOURNALD:
            return None if state.journald is None else state.journald.get(row.key, _NOT_SET)
        case Writer.IRQBALANCE:
            balancer = state.units[IRQBALANCE_UNIT]
            return balancer.environment.get(row.key, _NOT_SET) if balancer.active else None
        case _:
            return _of_server(row.key, state) if state.units[SERVER_UNIT].active else None


def _of_server(key: str, state: HostState) -> str:
    """What holds for the running server."""
    server = state.units[SERVER_UNIT]
    latency = state.cpu_dma_latency_us
    seen = {
        GLIBC_TUNABLES: server.environment.get(GLIBC_TUNABLES),
        MEMORY_SWAP_MAX: server.memory_swap_max,
        WAKE_LATENCY: None if latency is None else str(latency),
        COMPACTION: state.texts.get(COMPACTED),
    }[key]
    return _NOT_SET if seen is None else seen


def differs(setting: Setting, state: HostState) -> bool:
    """Whether any place holds another value than wanted. A setting that the host lacks does not differ."""
    return any(not setting.holds(value) for value in values(setting.row, state).values())


def highest(pattern: str, state: HostState) -> str | None:
    """The highest number that a sysfs pattern shows; None when it shows none."""
    texts = (normalised(text) for path, text in state.sysfs.items() if fnmatchcase(path, pattern))
    return max((text for text in texts if text.isdecimal() and len(text) < 19), key=int, default=None)


def unread(row: Row, state: HostState) -> str | None:
    """Why some place of this setting could not be read although it may be there; None when all were."""
    match row.writer:
        case Writer.CMDLINE:
            return None if state.kernel.cmdline is not None else state.unreadable.get("/proc/cmdline", _NOT_PROBED)
        case Writer.MASK:
            return unread_link(unit_file(row.key), state)
        case Writer.ENABLED:
            return next(filter(None, (unread_link(link, state) for link in TIME_SERVICES)), None)
        case Writer.APT:
            return _NOT_PROBED if state.apt is None else _unread_below("/etc/apt/", state)
        case Writer.JOURNALD:
            return _NOT_PROBED if state.journald is None else _unread_below("/etc/systemd/journald.conf", state)
        case Writer.IRQBALANCE:
            return unread_unit(IRQBALANCE_UNIT, state)
        case Writer.SERVER:
            return unread_unit(SERVER_UNIT, state)
    reasons = [state.unreadable[place] for place in _matching(state.unreadable, row.key, state)]
    if not reasons and not values(row, state):
        return _NOT_PROBED
    return next((why for why in reasons if why not in ABSENT), None)


def _unread_below(prefix: str, state: HostState) -> str | None:
    """Why one of several configuration files could not be read."""
    reasons = [why for place, why in sorted(state.unreadable.items()) if place.startswith(prefix)]
    return next((why for why in reasons if why not in ABSENT), None)


def unread_unit(unit: str, state: HostState) -> str | None:
    """Why a unit's control group could not be read; None when it was."""
    if unit not in state.units:
        return state.unreadable.get(unit, _NOT_PROBED)
    folder = f"/sys/fs/cgroup/system.slice/{unit}"
    return _unread_below(folder, state)


def unread_file(path: str, state: HostState) -> str | None:
    """Why a managed file could not be read although it may be there; None when it was, or is missing."""
    return _unread_place(path, state.files, state)


def unread_link(path: str, state: HostState) -> str | None:
    """The same for a symlink; an ordinary file in its place was read."""
    return _unread_place(path, state.links, state)


def unread_text(path: str, state: HostState) -> str | None:
    """The same for a small file's text."""
    return _unread_place(path, state.texts, state)


def missing(row: Row, state: HostState) -> list[str]:
    """Places that this host should have, because it has others of the same setting, and that were not found."""
    found = values(row, state)
    expected = [row.key.replace("/cpu*/", f"/cpu{cpu.cpu}/") for cpu in state.cpus if "/cpu*/" in row.key]
    sockets = {cpu.socket for cpu in state.cpus if cpu.socket is not None}
    expected += [
        row.key.replace("package_*_die_*", f"package_{n:02d}_die_00") for n in sockets if "package_*" in row.key
    ]
    expected += [row.key.replace("/node*/", f"/node{node.node}/") for node in state.nodes if "/node*/" in row.key]
    return [place for place in expected if place not in found] if found else []


def _unread_place(path: str, read: Mapping[str, str | None], state: HostState) -> str | None:
    if path not in read:
        return _NOT_PROBED
    reason = state.unreadable.get(path)
    return None if reason in (None, *ABSENT) else reason


def _matching(places: Iterable[str], pattern: str, state: HostState) -> list[str]:
    online = {cpu.cpu for cpu in state.cpus}

    def counts(place: str) -> bool:
        cpu = re.search(r"/cpu/cpu(\d+)/", place)
        return cpu is None or int(cpu.group(1)) in online

    return [place for place in sorted(places) if fnmatchcase(place, pattern) and counts(place)]
