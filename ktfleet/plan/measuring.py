"""What deploy.py needs to measure a host, and whether it is to."""

from __future__ import annotations

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, apt
from ktfleet.plan.changes import Commands
from ktfleet.plan.request import MEASURING


def skipped(plan: Plan) -> str | None:
    """Why deploy.py measures nothing, if so."""
    return "nothing is measured: the configuration says measure = never" if plan.config.measure == "never" else None


def install(plan: Plan, state: HostState) -> Commands:
    """Those that are missing."""
    missing = [name for name in MEASURING if name not in state.packages.installed]
    return (apt.install(*missing),) if missing and not skipped(plan) else ()
