"""What has to be done to a host for the server's environment: shell commands, as in plan/changes.py."""

from __future__ import annotations

from ktfleet.host import bundle
from ktfleet.host.state import HostState
from ktfleet.plan import Plan, jobs
from ktfleet.plan.changes import Commands, place
from ktfleet.plan.files import File
from ktfleet.plan.places import STACK, STACK_JOB, STACK_PROGRAM, STACK_UNIT, unit_file
from ktfleet.plan.shell import stop
from ktfleet.plan.stack.wanted import built, in_use


def skipped(plan: Plan) -> str | None:
    """Why no environment is installed, if so."""
    if plan.config.stack is None:
        return "the server's environment is not installed: the configuration says stack = None"
    return None


place_files = place(STACK_JOB, unit_file(STACK_UNIT), then="systemctl daemon-reload")


def prepare(plan: Plan, state: HostState) -> Commands:
    """The program, what it has to install, and the unit that runs it."""
    placed = jobs.place_program(program(), state) if plan.stack else ()
    return (*placed, *place_files(plan, state))


def program() -> File:
    """The program as it is placed."""
    return jobs.program(STACK_PROGRAM, bundle.STACK)


def nothing_to_build(plan: Plan, state: HostState) -> bool:
    """Whether the wanted environment is complete, in use or not."""
    return plan.stack is None or built(plan.stack, state)


def nothing_to_switch(plan: Plan, state: HostState) -> bool:
    """Whether the server starts from the wanted environment already."""
    return plan.stack is None or in_use(plan.stack, state)


def start(plan: Plan, state: HostState) -> Commands:
    """Start what builds it, unless it is there or it is at work."""
    if nothing_to_build(plan, state) or jobs.at_work(STACK_UNIT, state):
        return ()
    return (jobs.start(STACK_UNIT),)


def switch(plan: Plan, state: HostState) -> Commands:
    """Make it the one that the server starts from, in one step: whoever looks sees the old one or the new one."""
    if plan.stack is None or nothing_to_switch(plan, state):
        return ()
    new = f"{STACK}.new"
    there = (
        f"{STACK} is not a symlink: seen a file or folder, wanted ktfleet's own link; move it away, then run this again"
    )
    link = f"ln -sfnT {plan.stack.job.folder} {new} && mv -fT {new} {STACK}"
    return (f"{{ [ ! -e {STACK} ] || [ -L {STACK} ] || {{ {stop(there)}; }}; }} && {link}",)
