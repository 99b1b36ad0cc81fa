"""Waiting for a host that is busy with itself: cloud-init of a first boot, a package manager at work."""

from __future__ import annotations

import time

from pyinfra import logger
from pyinfra.api import Host, State

from ktfleet.plan import Plan
from ktfleet.plan.busy import busy
from ktfleet.pyinfra_api.facts import forget, host_state
from ktfleet.pyinfra_api.lost import lost

LIMIT_S = 600
"""A fresh system's first updates take minutes."""

_POLL_S = 5
_REPORT_S = 15


def wait(state: State, host: Host, plan: Plan) -> bool:
    """Until nobody is at work any more. False, with the reason in the log, after LIMIT_S seconds."""
    start, reported = time.monotonic(), -float(_REPORT_S)
    while True:
        forget(host)
        seen = host_state(host, plan.config)
        if seen is None and lost(host):
            return False  # `lost.py` says so
        who = busy(seen) if seen else "no answer"
        if who is None:
            return True
        waited = time.monotonic() - start
        if waited > LIMIT_S:
            line = (
                f"the host is busy: seen {who} at work for {waited:.0f} s, wanted nobody; end it, then run this again"
            )
            host.log_styled(line, fg="red", log_func=logger.error)
            return False
        if waited - reported >= _REPORT_S:
            reported = waited
            logger.info(f"{host.print_prefix}waiting for {who}: {waited:.0f} s of at most {LIMIT_S} s")
        time.sleep(_POLL_S)
