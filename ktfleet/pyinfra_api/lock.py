"""The lock of each host of this run: taken before its first change, given back at the end or at a failure."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyinfra.api import Host, State, StringCommand
from pyinfra.api.state import BaseStateCallback

from ktfleet.host.state import HostState
from ktfleet.plan import lock
from ktfleet.plan.places import LOCK
from ktfleet.problem import Problem
from ktfleet.pyinfra_api.lost import lost

_HELD, _SUDO = "ktfleet_lock", "ktfleet_lock_sudo"


def _controller() -> str:
    """This machine: hosts of the same name are told apart by a part of their machine id."""
    identity = ""
    with suppress(OSError):
        identity = Path("/etc/machine-id").read_text(encoding="ascii")[:8]
    return f"{socket.gethostname()}/{identity}"


def held_by_another(state: HostState) -> Problem | None:
    """The refusal, when another run that may be alive holds the lock."""
    text = state.texts.get(LOCK)
    return lock.problem(text) if text and not _dead(text) else None


def _dead(text: str) -> bool:
    """Whether the holder ran on this controller and does no more."""
    pid = lock.process(text, _controller())
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def take(host: Host, state: HostState) -> str | None:
    """The command that takes the lock; None when this run holds it already."""
    if _HELD in host.connector_data:
        return None
    who = lock.holder(getpass.getuser(), _controller(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))
    arguments = host.current_op_global_arguments
    host.connector_data[_HELD] = who
    host.connector_data[_SUDO] = bool(arguments and arguments["_sudo"])
    text = state.texts.get(LOCK)
    return lock.take_over(text, who) if text and _dead(text) else lock.take(who)


def release(host: Host) -> str | None:
    """The command that gives it back; None when this run does not hold it."""
    who = host.connector_data.pop(_HELD, None)
    return None if who is None else lock.release(who)


def forget(host: Host) -> None:
    """A reboot freed it."""
    host.connector_data.pop(_HELD, None)


class ReleaseOnFailure(BaseStateCallback):
    """pyinfra gives a failed host no further operation: the lock must not stay behind."""

    @staticmethod
    def operation_host_error(state: State, host: Host, *_: Any, **__: Any) -> None:
        """Release over the connection that is still there; without one the run's end makes the lock stale."""
        command = release(host)
        if command and host.connected and not lost(host):
            with suppress(Exception):
                host.run_shell_command(StringCommand(command), _sudo=host.connector_data[_SUDO])
