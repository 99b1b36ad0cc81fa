"""Waiting for a unit of the host: it goes on by itself, this only looks at it."""

from __future__ import annotations

import time
from collections.abc import Callable

from paramiko import SSHException
from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, Host, State, StringCommand, operation

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, told
from ktfleet.pyinfra_api.facts import forget, host_state
from ktfleet.pyinfra_api.operations import Commands

_POLL_S = 5
_REPORT_S = 30
_SILENT_S = 120
"""A host that gives no answer for so long is given up; its unit goes on."""


@operation()
def wait(plan: Plan, unit: str, over: Callable[[Plan, HostState], bool]) -> Commands:
    """Until the unit has ended, unless its work is done already. It fails the host when the unit failed."""
    seen = host_state(host, plan.config)
    if not state.is_executing or (seen is not None and over(plan, seen)):
        return
    arguments = host.current_op_global_arguments
    sudo = bool(arguments and arguments["_sudo"])
    yield FunctionCommand(wait_for, (unit, sudo), {})
    forget(host)


def wait_for(state: State, host: Host, unit: str, sudo: bool) -> bool:
    """Look every few seconds, say how far it is. False, with the reasons in the log, when it failed."""
    reported, answered = -float(_REPORT_S), time.monotonic()
    while True:
        found = _look(host, unit, sudo)
        now = time.monotonic()
        if found is None:
            if now - answered > _SILENT_S:
                line = f"{unit} cannot be asked: seen no answer for {_SILENT_S} s, wanted one; run deploy.py again"
                host.log_styled(f"{line}: it goes on without us", fg="red", log_func=logger.error)
                return False
            time.sleep(_POLL_S)
            continue
        answered = now
        if found.state == "done":
            logger.info(f"{host.print_prefix}{found.line}")
            return True
        if found.state == "failed":
            for problem in found.problems:
                host.log_styled(problem, fg="red", log_func=logger.error)
            return False
        if now - reported >= _REPORT_S:
            reported = now
            logger.info(f"{host.print_prefix}{found.line}")
        time.sleep(_POLL_S)


def _look(host: Host, unit: str, sudo: bool) -> told.Told | None:
    try:
        _, output = host.run_shell_command(StringCommand(told.command(unit)), _sudo=sudo)
    except (SSHException, OSError):
        return None
    return told.parse(unit, output.stdout_lines)
