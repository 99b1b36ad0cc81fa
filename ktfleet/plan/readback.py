"""What a host's state says about each setting, in a form that can be compared with the wanted value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase

from ktfleet.host.state import HostState
from ktfleet.plan.places import unit_file
from ktfleet.plan.settings import MASKED, NOT_MASKED, TABLE, Row, Setting, Writer
from ktfleet.problem import Problem


def normalised(text: str) -> str:
    """The chosen word of a list of choices ("always [madvise] never"), else the text with single spaces."""
    chosen = re.search(r"\[([^\]]+)\]", text)
    return chosen.group(1) if chosen else " ".join(text.split())


def parameter(cmdline: str | None, name: str) -> str | None:
    """The value of a kernel parameter; the last one wins, as in the kernel. None: not given.

    A parameter without a value is "".
    """
    values = (word.partition("=") for word in split(cmdline or ""))
    return next((value for key, _, value in reversed(list(values)) if key == name), None)


def split(cmdline: str) -> list[str]:
    """The parameters of a command line; an unbalanced quote does not hide the rest."""
    try:
        return shlex.split(cmdline)
    except ValueError:
        return cmdline.split()


def values(row: Row, state: HostState) -> Mapping[str, str]:
    """place -> normalised value, for every place where the host has this setting. Empty: nowhere."""
    if row.writer is Writer.CMDLINE:
        value = parameter(state.kernel.cmdline, row.key)
        return {} if value is None else {row.key: value}
    if row.writer is Writer.MASK:
        return {} if unread(row, state) else {row.key: _masked(state.links[unit_file(row.key)])}
    found = state.sysctl if row.writer is Writer.SYSCTL else state.sysfs
    return {place: normalised(text) for place, text in sorted(found.items()) if fnmatchcase(place, row.key)}


def _masked(target: str | None) -> str:
    return MASKED if target == "/dev/null" else NOT_MASKED


def highest(pattern: str, state: HostState) -> str | None:
    """The highest number that a sysfs pattern shows; None when it shows none."""
    texts = (normalised(text) for path, text in state.sysfs.items() if fnmatchcase(path, pattern))
    return max((text for text in texts if text.isdecimal()), key=int, default=None)


def unread(row: Row, state: HostState) -> str | None:
    """Why some place of this setting could not be read although it may be there; None when all were."""
    if row.writer is Writer.CMDLINE:
        return None if state.kernel.cmdline is not None else state.unreadable.get("/proc/cmdline", _NOT_PROBED)
    if row.writer is Writer.MASK:
        return unread_link(unit_file(row.key), state)
    reasons = [why for place, why in state.unreadable.items() if fnmatchcase(place, row.key)]
    if not reasons and not values(row, state):
        return _NOT_PROBED
    return next((why for why in reasons if why not in ABSENT), None)


def unread_file(path: str, state: HostState) -> str | None:
    """Why a managed file could not be read although it may be there; None when it was, or is missing."""
    return _unread_place(path, state.files, state)


def unread_link(path: str, state: HostState) -> str | None:
    """The same for a symlink; an ordinary file in its place was read."""
    return _unread_place(path, state.links, state)


def _unread_place(path: str, read: Mapping[str, str | None], state: HostState) -> str | None:
    if path not in read:
        return _NOT_PROBED
    reason = state.unreadable.get(path)
    return None if reason in (None, *ABSENT) else reason


ABSENT = ("no such file", "no readable match", "not a symlink")
"""The probe's reasons for a path that does not exist, a pattern that nothing matches, an ordinary unit file."""

_NOT_PROBED = "it was not probed"


def differs(setting: Setting, state: HostState) -> bool:
    """Whether any place holds another value than wanted. A setting that the host lacks does not differ."""
    return any(value != setting.wanted for value in values(setting.row, state).values())


def next_parameter(row: Row, state: HostState) -> str | None:
    """The value of a command line row that the next boot will get, None: not given or not known."""
    return parameter(state.boot.next_cmdline, row.key)


def reboot_reasons(settings: tuple[Setting, ...], state: HostState) -> tuple[str, ...]:
    """Why a reboot is needed: each parameter of the table that the next boot has and this one lacks, or the reverse.

    Parameters that are not in the table are no reason: they are not ours.
    """
    wanted = {setting.key: setting.wanted for setting in settings if setting.row.writer is Writer.CMDLINE}
    reasons = []
    for row in TABLE:
        if row.writer is not Writer.CMDLINE:
            continue
        running = parameter(state.kernel.cmdline, row.key)
        coming = wanted.get(row.key, next_parameter(row, state))
        if running != coming:
            reasons.append(f"{row.key}: running {_shown(running)}, next boot {_shown(coming)}")
    return tuple(reasons)


def overridden(settings: tuple[Setting, ...], state: HostState) -> tuple[Problem, ...]:
    """Wanted command line values that the generated boot configuration lacks: a reboot would not bring them."""
    return tuple(
        Problem(
            f"the next boot would not get {setting.key}={setting.wanted}",
            f"{_shown(next_parameter(setting.row, state))} in the generated grub.cfg",
            setting.wanted,
            f"find the file that replaces it: {', '.join(state.boot.drop_ins) or 'no drop-ins were seen'}",
        )
        for setting in settings
        if setting.row.writer is Writer.CMDLINE and next_parameter(setting.row, state) != setting.wanted
    )


def _shown(value: str | None) -> str:
    return "nothing" if value is None else value or "set"
