"""Reboot by boot id. pyinfra's own reboot goes by uptime and can mistake a system going down for one that is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from paramiko import SSHException
from pyinfra import logger
from pyinfra.api import Host, State, StringCommand
from pyinfra.api.exceptions import PyinfraError

from ktfleet.plan.places import BOOT_UNIT
from ktfleet.pyinfra_api import lock

LIMIT_S = 900
"""Server boards spend minutes in their power-on self test."""

NEVER_WENT_DOWN_S = 180
"""A host that still answers with its old boot id after this long ignored the reboot (units get 90 s to stop)."""

BOOT_UNIT_LIMIT_S = 300
"""Reserving a large huge page pool takes its time."""

_POLL_S = 3
_REPORT_S = 30


def reboot(
    state: State, host: Host, old_boot_id: str, kernel: str | None, reasons: tuple[str, ...], sudo: bool
) -> bool:
    """Reboot and wait until another boot id answers, with the kernel that the boot loader was to start.

    False, with the reason in the log, when none does.
    """
    try:
        return _reboot(host, old_boot_id, kernel, reasons, sudo)
    except (SSHException, OSError):
        return False  # the connection: `lost.py` says so, for every operation


def _reboot(host: Host, old_boot_id: str, kernel: str | None, reasons: tuple[str, ...], sudo: bool) -> bool:
    logger.info(f"{host.print_prefix}rebooting: {'; '.join(reasons)}")
    # Detached, so that the connection is closed by us and not cut in the middle of an answer.
    host.run_shell_command(StringCommand("(sleep 1; systemctl reboot) >/dev/null 2>&1 &"), _sudo=sudo)
    with _quiet_paramiko():
        if not _wait_for_another_boot(host, old_boot_id):
            return False
    lock.forget(host)
    if kernel and not _runs(host, kernel):
        return False
    # ssh answers before the boot is over. Starting a unit that is being started waits for it; whether its values
    # took is judged by the drift check, from the values.
    host.run_shell_command(StringCommand("timeout", BOOT_UNIT_LIMIT_S, "systemctl", "start", BOOT_UNIT), _sudo=sudo)
    return True


def _wait_for_another_boot(host: Host, old_boot_id: str) -> bool:
    start, answered, reported = time.monotonic(), 0.0, 0.0
    waited = 0.0
    while waited < LIMIT_S:
        time.sleep(_POLL_S)
        waited = time.monotonic() - start
        boot_id = _boot_id(host)
        if boot_id and boot_id != old_boot_id:
            logger.info(f"{host.print_prefix}back after {waited:.0f} s")
            return True
        if boot_id and waited > NEVER_WENT_DOWN_S:
            do = "look at `systemctl list-jobs` there"
            return _fail(host, "did not reboot", f"the same boot id after {waited:.0f} s", do)
        answered = waited if boot_id else answered
        if waited - reported > _REPORT_S:
            reported = waited
            logger.info(f"{host.print_prefix}rebooting: {waited:.0f} s of at most {LIMIT_S} s")
    seen = f"no answer for {waited - answered:.0f} s"
    return _fail(host, "did not come back", seen, "look at its console, then run deploy.py again")


def _runs(host: Host, kernel: str) -> bool:
    ok, output = host.run_shell_command("cat /proc/sys/kernel/osrelease", _timeout=60)
    seen = output.stdout.strip() if ok else "no answer"
    if seen == kernel:
        return True
    do = "see GRUB_DEFAULT in /etc/default/grub and `grub-editenv list` there, then run deploy.py again"
    line = f"the host came back on another kernel: seen {seen}, wanted {kernel}; {do}"
    host.log_styled(line, fg="red", log_func=logger.error)
    return False


def _boot_id(host: Host) -> str | None:
    """The boot id over a fresh connection; None while nothing answers."""
    _drop_connection(host)
    try:
        host.connect(show_errors=False, raise_exceptions=True)
        ok, output = host.run_shell_command("cat /proc/sys/kernel/random/boot_id", _timeout=10)
    except (PyinfraError, SSHException, OSError, EOFError):
        return None
    return output.stdout.strip() if ok else None


@contextmanager
def _quiet_paramiko() -> Iterator[None]:
    """While a host is away its connections break: paramiko's threads would print a traceback for each, later."""
    logger_of_paramiko = logging.getLogger("paramiko")
    level = logger_of_paramiko.level
    logger_of_paramiko.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger_of_paramiko.setLevel(level)


def _drop_connection(host: Host) -> None:
    client = getattr(host.connector, "client", None)
    host.disconnect()
    if client is not None:
        client.close()


def _fail(host: Host, what: str, seen: str, do: str) -> bool:
    line = f"the host {what}: seen {seen}, wanted another boot id within {LIMIT_S} s; {do}"
    host.log_styled(line, fg="red", log_func=logger.error)
    return False
