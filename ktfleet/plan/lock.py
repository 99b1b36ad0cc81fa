"""One run at a time changes a host: a file there says which."""

from __future__ import annotations

import re
from shlex import quote

from ktfleet.plan.places import LOCK
from ktfleet.plan.shell import make_folder
from ktfleet.problem import Problem

_HOLDER = re.compile(r"(?P<user>\S+)@(?P<controller>\S+) pid (?P<pid>\d{1,10}) since \S+")


def holder(user: str, controller: str, pid: int, since: str) -> str:
    """What the file says: "alice@desk/1f3a pid 4711 since 2026-12-02T10:00:00+00:00"."""
    return f"{user}@{controller} pid {pid} since {since}"


def process(text: str, controller: str) -> int | None:
    """The holder's process id, if it ran on this controller."""
    match = _HOLDER.fullmatch(text)
    return int(match["pid"]) if match and match["controller"] == controller else None


def problem(text: str) -> Problem:
    """Why another run has to wait."""
    do = f"wait for it to end; if it is dead, remove {LOCK} there and run this again"
    return Problem("another run is changing this host", text, "nobody", do)


def take(who: str) -> str:
    """A shell command that fails, naming the holder, unless the lock was free. /run: a reboot frees it."""
    made = f"(set -C; printf %s {quote(who)} >{LOCK}) 2>/dev/null"
    other = f'"another run is changing this host: seen $(cat {LOCK}), wanted nobody; wait for it to end"'
    return f"{make_folder(LOCK.rpartition('/')[0])} && {{ {made} || {{ echo {other} >&2; exit 1; }}; }}"


def take_over(dead: str, who: str) -> str:
    """The same, after the lock of a run that is known to be dead was removed."""
    return f"{release(dead)}; {take(who)}"


def release(who: str) -> str:
    """Give it back, if it is still ours."""
    return f'if [ "$(cat {LOCK} 2>/dev/null)" = {quote(who)} ]; then rm -f {LOCK}; fi'
