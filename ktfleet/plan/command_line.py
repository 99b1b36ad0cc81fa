"""The kernel command line: what runs, what the next boot gets, which of it is ours."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ktfleet.host.state import HostState
from ktfleet.plan.row import Row, Setting, Writer
from ktfleet.problem import Problem

if TYPE_CHECKING:
    from ktfleet.plan import Plan


def parameter(cmdline: str | None, name: str) -> str | None:
    """The value of a kernel parameter; the last one wins, as in the kernel. None: not given.

    A parameter without a value is "". As in the kernel, - and _ are the same in a name, and what follows -- is
    for the first process.
    """
    words = _split(cmdline or "")
    ours = words[: words.index("--")] if "--" in words else words
    values = [word.partition("=") for word in ours]
    return next((value for key, _, value in reversed(values) if key.replace("-", "_") == name), None)


def _split(cmdline: str) -> list[str]:
    """The parameters of a command line; an unbalanced quote does not hide the rest."""
    try:
        return shlex.split(cmdline)
    except ValueError:
        return cmdline.split()


def next_parameter(row: Row, state: HostState) -> str | None:
    """The value of a command line row that the next boot will get, None: not given or not known."""
    return parameter(state.boot.next_cmdline, row.key)


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


def ours(setting: Setting, value: str | None, state: HostState) -> bool:
    """Whether this value of an opt-in that is not taken (any more) would be ktfleet's doing.

    It is when ktfleet has set the parameter before (it recorded what was there), gives it such values, and another
    one was there. Any other value is the owner's.
    """
    before = state.before.get(setting.key)
    return isinstance(before, dict) and value in setting.row.takes and before.get(setting.key) != value


def lingering(not_asked_for: tuple[Setting, ...], state: HostState) -> tuple[Setting, ...]:
    """Opt-ins that were taken back, and whose value of ours the next boot would still get."""
    return tuple(s for s in not_asked_for if ours(s, next_parameter(s.row, state), state))


def reboot_reasons(plan: Plan, state: HostState) -> tuple[str, ...]:
    """Why a reboot is needed: a wanted parameter does not run, or ours still runs although it was taken back.

    Nothing else is a reason: other parameters are not ours, and what the next boot gets must be known.
    """
    running = {s.key: parameter(state.kernel.cmdline, s.key) for s in (*plan.settings, *plan.not_asked_for)}
    reasons = [
        (s.key, s.wanted) for s in plan.settings if s.row.writer is Writer.CMDLINE and running[s.key] != s.wanted
    ]
    if state.boot.next_cmdline is not None:
        coming = {s.key: next_parameter(s.row, state) for s in plan.not_asked_for}
        reasons += [
            (s.key, _shown(coming[s.key]))
            for s in plan.not_asked_for
            if ours(s, running[s.key], state) and coming[s.key] != running[s.key]
        ]
    return tuple(
        f"{key}: running {_shown(parameter(state.kernel.cmdline, key))}, next boot {coming}" for key, coming in reasons
    )


def _shown(value: str | None) -> str:
    return "nothing" if value is None else value or "set"
