"""What has to be done to a host for its server: shell commands, as in plan/changes.py."""

from __future__ import annotations

import json
from shlex import join, quote

from ktfleet.host import bundle
from ktfleet.host.state import HostState
from ktfleet.plan import Plan, apt, jobs
from ktfleet.plan.changes import Commands, place
from ktfleet.plan.files import File
from ktfleet.plan.places import (
    FRONT_CONFIGURATION,
    FRONT_ENABLED,
    FRONT_UNIT,
    SERVER_ENABLED,
    SERVER_JOB,
    SERVER_KEY,
    SERVER_PROGRAM,
    SERVER_PROGRESS,
    SERVER_STARTED,
    SERVER_UNIT,
    SYSTEM_PYTHON,
    WEIGHTS,
    WEIGHTS_JOB,
    unit_file,
)
from ktfleet.plan.server import wanted
from ktfleet.server.job import identity

NOT_RUNNING = "it does not run"


def skipped(plan: Plan) -> str | None:
    """Why nothing is served, if so."""
    return plan.not_served


def stop_unwanted(plan: Plan, state: HostState) -> Commands:
    """What an earlier configuration served, and no longer asks for."""
    unwanted = {FRONT_UNIT: (FRONT_ENABLED, not plan.fronted), SERVER_UNIT: (SERVER_ENABLED, plan.server is None)}
    units = [unit for unit, (link, gone) in unwanted.items() if gone and state.links.get(link) is not None]
    return (f"systemctl -q disable --now {join(units)}; rm -f {SERVER_KEY}",) if units else ()


def prepare(plan: Plan, state: HostState) -> Commands:
    """The program that the unit runs."""
    return jobs.place_program(program(), state) if plan.server else ()


def program() -> File:
    """The program as it is placed."""
    return jobs.program(SERVER_PROGRAM, bundle.SERVER)


def reasons(plan: Plan, state: HostState) -> tuple[str, ...]:
    """Why the server has to be started (again): what differs from what the running one was started from."""
    if plan.server is None:
        return ()
    if not jobs.at_work(SERVER_UNIT, state):
        return (NOT_RUNNING,)
    running = started(state)
    now = identity(plan.server, state.links.get(plan.server.stack), state.files.get)
    return tuple(f"another {name}" for name in sorted({*now, *running}) if now.get(name) != running.get(name))


def started(state: HostState) -> dict[str, object]:
    """What the running server was started from, as it says itself."""
    return _object(state.texts.get(SERVER_STARTED))


def ready(state: HostState) -> bool:
    """Whether the running server has generated a token, and nothing fatal was said since."""
    return jobs.at_work(SERVER_UNIT, state) and _object(state.texts.get(SERVER_PROGRESS)).get("state") == "done"


def _object(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def validate(plan: Plan, state: HostState) -> Commands:
    """Before the old server is stopped: the weights are whole, and what the new one imports and needs is there."""
    if plan.server is None or not reasons(plan, state):
        return ()
    verify = (join((SYSTEM_PYTHON, "-I", WEIGHTS, "verify", WEIGHTS_JOB)),) if plan.weights else ()
    check = join((SYSTEM_PYTHON, "-I", SERVER_PROGRAM, "check"))
    return (*verify, f"printf %s {quote(plan.server.to_json())} | {check}")


def enable(plan: Plan, state: HostState) -> Commands:
    """What it is started from, and its unit, at every boot."""
    return _unit(plan, state, SERVER_UNIT, SERVER_ENABLED, SERVER_JOB) if plan.server else _remove(plan, state)


_remove = place(SERVER_JOB, unit_file(SERVER_UNIT), FRONT_CONFIGURATION, unit_file(FRONT_UNIT),
                then="systemctl daemon-reload")  # fmt: skip


def _unit(plan: Plan, state: HostState, unit: str, link: str, file: str) -> Commands:
    written = place(file, unit_file(unit), then="systemctl daemon-reload")(plan, state)
    enabled = state.links.get(link) is not None
    return (*written, *(() if enabled else (f"systemctl -q enable {unit}",)))


def start(plan: Plan, state: HostState) -> Commands:
    """Start it, or start it again from what is wanted now. It is not waited for here."""
    if not reasons(plan, state):
        return ()
    # How it failed before is forgotten, and with it how often.
    restart = f"systemctl reset-failed -q {SERVER_UNIT} 2>/dev/null; systemctl restart --no-block {SERVER_UNIT}"
    return (f"rm -f {SERVER_PROGRESS}; {restart}",)


def nothing_to_wait_for(plan: Plan, state: HostState) -> bool:
    """Whether it serves already, or nothing is to."""
    return plan.server is None or (ready(state) and not reasons(plan, state))


def install_front(plan: Plan, state: HostState) -> Commands:
    """The proxy's package. Its own service is never started, unless somebody had it before."""
    package = wanted.FRONT_PACKAGE
    if not plan.fronted or package in state.packages.installed:
        return ()
    return (f"systemctl -q mask {package}.service && {apt.install(package)}",)


def serve_front(plan: Plan, state: HostState) -> Commands:
    """Its configuration and its unit; it takes a new configuration by a restart, which clients notice."""
    if not plan.fronted:
        return _remove_front(plan, state)
    written = _unit(plan, state, FRONT_UNIT, FRONT_ENABLED, FRONT_CONFIGURATION)
    if not written and jobs.at_work(FRONT_UNIT, state):
        return ()
    return (*written, f"systemctl reset-failed -q {FRONT_UNIT} 2>/dev/null; systemctl restart {FRONT_UNIT}")


_remove_front = place(FRONT_CONFIGURATION, unit_file(FRONT_UNIT), then="systemctl daemon-reload")
