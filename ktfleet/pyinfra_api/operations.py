"""pyinfra operations: apply a change, reboot when needed, check. Decisions come from the plan."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, Host, State, StringCommand, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.connectors.local import LocalConnector

from ktfleet import results, verdict
from ktfleet.host.state import HostState
from ktfleet.plan import Plan, command_line
from ktfleet.plan import reboot as rebooting
from ktfleet.plan.busy import busy
from ktfleet.plan.changes import Change
from ktfleet.plan.gpu.changes import prove_module
from ktfleet.pyinfra_api import lock, reboot
from ktfleet.pyinfra_api import settle as settling
from ktfleet.pyinfra_api.facts import forget, host_state

Commands = Generator[PyinfraCommand, None, None]

_BY_HAND = "reboot it, then run this again"


@operation()
def apply(plan: Plan, change: Change) -> Commands:
    """Run the commands that `change` finds necessary. None on a converged host."""
    seen = host_state(host, plan.config)
    if seen is None:
        yield fail("the host cannot be probed any more: seen no answer, wanted its state; run deploy.py again")
        return
    for command in change(plan, seen):
        yield from begin(seen)
        yield StringCommand(command)


def begin(seen: HostState) -> Commands:
    """Before a change: this run takes the host's lock, and nothing is proven any more."""
    if state.is_executing:
        forget(host)
        results.store(host.name, "drift", verdict.unfinished())
        taken = lock.take(host, seen)
        if taken:
            yield StringCommand(taken)


@operation()
def tell(plan: Plan, reason: Callable[[Plan], str | None]) -> Commands:
    """Say why something is not done. It is no change."""
    line = reason(plan)
    if line and state.is_executing:
        logger.info(f"{host.print_prefix}{line}")
    yield from ()


@operation()
def settle(plan: Plan) -> Commands:
    """Wait for a host that is busy with itself: a first boot, a package manager at work."""
    seen = host_state(host, plan.config)
    if seen and busy(seen):
        yield FunctionCommand(settling.wait, (plan,), {})


@operation()
def release() -> Commands:
    """Give the host's lock back, if this run took it."""
    if state.is_executing:
        command = lock.release(host)
        if command:
            yield StringCommand(command)


@operation()
def reboot_if_needed(plan: Plan) -> Commands:
    """Reboot once if only that brings the command line, or the card's driver."""
    seen = host_state(host, plan.config)
    reasons = rebooting.reasons(plan, seen) if seen else ()
    if not seen or not reasons:
        return
    # While preparing, the command line is not yet written: only announce what will happen then.
    useless = command_line.overridden(plan.settings, seen) if state.is_executing else ()
    if useless:
        yield fail(*map(str, useless))
    elif isinstance(host.connector, LocalConnector):
        yield fail(f"this machine needs a reboot: seen {'; '.join(reasons)}, wanted both equal; {_BY_HAND}")
    else:
        arguments = host.current_op_global_arguments
        sudo = bool(arguments and arguments["_sudo"])
        for command in prove_module(plan, seen):
            yield StringCommand(command)
        # Somebody may have begun to install packages since the first look.
        yield FunctionCommand(settling.wait, (plan,), {})
        yield FunctionCommand(reboot.reboot, (seen.kernel.boot_id, seen.boot.next_kernel, reasons, sudo), {})
        forget(host)


@operation()
def check_drift(plan: Plan) -> Commands:
    """Read every setting and file back from the running host, judge, store the verdicts, fail on a bad one.

    While preparing (pyinfra --dry, or before its question), only list what differs.
    """
    if not state.is_executing:
        _list_differences(verdict.drift(plan, host_state(host, plan.config)))
        return
    forget(host)
    yield from conclude("drift", verdict.drift(plan, host_state(host, plan.config)))


def conclude(check: str, verdicts: tuple[verdict.Verdict, ...], holds_for: Mapping[str, str] | None = None) -> Commands:
    """Store a check's verdicts, say what was skipped and how many there are, fail the host on a bad one.

    holds_for: see plan/circumstances.py; None: it is never to be taken for a later run's.
    """
    results.store(host.name, check, verdicts, holds_for=holds_for)
    for judged in verdicts:
        if judged.result == "skipped":
            logger.info(f"{host.print_prefix}{judged}")
    logger.info(f"{host.print_prefix}{check}: {verdict.summary(verdicts)}")
    bad = [str(judged) for judged in verdicts if not judged.good]
    if bad:
        yield fail(*bad)


def skip(check: str, why: str) -> Commands:
    """Store that a check looked at nothing, and say why."""
    yield from conclude(check, (verdict.Verdict(check, "skipped", "not measured", "nothing", why),))


def _list_differences(verdicts: tuple[verdict.Verdict, ...]) -> None:
    for judged in verdicts:
        if not judged.good:
            logger.info(f"{host.print_prefix}differs: {judged.difference}")


def fail(*lines: str) -> FunctionCommand:
    """A command that says why and fails this host alone."""
    return FunctionCommand(_say_and_fail, lines, {})


def _say_and_fail(state: State, host: Host, *lines: str) -> bool:
    for line in lines:
        host.log_styled(line, fg="red", log_func=logger.error)
    return False
