"""Admission: the whole inventory is probed and judged before any host is touched."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import gevent
from gevent.lock import BoundedSemaphore
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api import DeployError, Host, Inventory, State, StringCommand
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.connectors import get_all_connectors
from pyinfra.context import ctx_host

from ktfleet import config, recipes, results
from ktfleet.plan import Plan, make
from ktfleet.problem import Problem, Refused
from ktfleet.pyinfra_api import lock
from ktfleet.pyinfra_api.facts import host_state
from ktfleet.pyinfra_api.lost import SayLost
from ktfleet.verdict import Verdict

_ONE_AT_A_TIME = BoundedSemaphore(1)
_ADMITTED: WeakKeyDictionary[State, dict[str, Plan] | DeployError] = WeakKeyDictionary()


def admit(inventory: Inventory, host: Host) -> Plan:
    """The plan of `host`, once every host of this run has been admitted.

    Raises DeployError with every problem of every host, a line each.
    """
    # pyinfra prepares the hosts concurrently: the first one admits them all, the others wait for it.
    with _ONE_AT_A_TIME:
        if host.state not in _ADMITTED:
            _ADMITTED[host.state] = _admit_all(inventory)
    admitted = _ADMITTED[host.state]
    if isinstance(admitted, DeployError):
        raise admitted
    return admitted[host.name]


def _admit_all(inventory: Inventory) -> dict[str, Plan] | DeployError:
    """Plans for all, or what is wrong; either way the hosts' results say so."""
    for handler in (lock.ReleaseOnFailure(), SayLost()):
        inventory.state.add_callback_handler(handler)
    selected = [host for host in inventory if host.state.is_host_in_limit(host)]
    jobs = {host.name: gevent.spawn(_admit_one, host) for host in selected}
    gevent.joinall(list(jobs.values()), raise_error=True)
    admitted = {name: job.value for name, job in jobs.items()}
    for name, (plan, problems) in admitted.items():
        results.store(name, "admission", (*_verdicts(problems), *_accepted(plan)))
    refused = [f"{name}  refused: {problem}" for name, (_, problems) in admitted.items() for problem in problems]
    if refused:
        return DeployError("\n".join(("", *refused, "Nothing was touched.")))
    return {name: plan for name, (plan, _) in admitted.items() if plan is not None}


def _verdicts(problems: tuple[Problem, ...]) -> tuple[Verdict, ...]:
    if not problems:
        return (Verdict("refusals", "pass", "none", "none", "the plan was made"),)
    return tuple(Verdict(p.what, "fail", p.seen, p.wanted, p.do) for p in problems)


def _accepted(plan: Plan | None) -> tuple[Verdict, ...]:
    """Guard rails that are crossed with a reason: told in every report."""
    crossed = plan.accepted if plan else ()
    return tuple(Verdict(f"accept.{each.rail.setting}", "pass", str(each), "", each.rail.why) for each in crossed)


def _admit_one(host: Host) -> tuple[Plan | None, tuple[Problem, ...]]:
    try:
        wanted = config.parse(own_data(host), host.name)
        recipe = recipes.load(wanted.recipe, wanted.override, host.name)
    except Refused as refused:
        return None, refused.problems
    if not host.connected:
        do = f"see its line above, or leave it out with --exclude {host.name}"
        return None, (Problem("the host cannot be reached", "no ssh connection", "one", do),)
    if _sudo_wants_a_password(host):
        do = "allow it in /etc/sudoers.d, or run pyinfra with --same-sudo-password"
        return None, (Problem("sudo wants a password", "sudo -n refused", "sudo without a password", do),)
    with ctx_host.use(host):
        state = host_state(host, wanted)
    if state is None:
        do = "install python3 (3.8 or newer) and let the user run sudo without a password"
        return None, (Problem("the host cannot be probed", "the message above", "the probe's JSON", do),)
    plan = make(state, wanted, recipe)
    for note in plan.notes:
        logger.info(f"{host.print_prefix}note: {note}")
    for each in plan.accepted:
        logger.warning(f"{host.print_prefix}accepted: {each}")
    results.store_worksheet(host.name, plan.worksheet)
    for item in plan.worksheet:
        if item.answer == "change":
            logger.info(f"{host.print_prefix}worksheet: {item}")
    held = lock.held_by_another(state)
    return plan, (*plan.refusals, *plan.unknown, *([held] if held else []))


def _sudo_wants_a_password(host: Host) -> bool:
    """One harmless try: pyinfra itself would ask at the terminal, and fail without one."""
    given = host.data.get("_sudo_password") or host.state.config.SUDO_PASSWORD
    if given or not host.data.get("_sudo"):
        return False
    # The message is kept from pyinfra, and the exit code: it reacts to both.
    try:
        _, output = host.run_shell_command(StringCommand("sudo -n true 2>/dev/null || echo refused"))
    except (SSHException, OSError):
        return False  # the connection was lost: the probe meets the same end, and that is a refusal
    return output.stdout_lines[-1:] == ["refused"]


def own_data(host: Host) -> dict[str, Any]:
    """The host's inventory data less what belongs to pyinfra itself (global arguments, connector settings)."""
    theirs = {name for name, _ in all_global_arguments()}
    for connector in get_all_connectors().values():
        theirs |= set(connector.data_meta)
    return {key: value for key, value in host.data.dict().items() if key not in theirs}
