"""What pyinfra 3.10 ends with exit code 0 although it is a failure: `--no-wait` with a failed host, and no hosts."""

from __future__ import annotations

import atexit
import os
import sys

from pyinfra import state
from pyinfra.api import DeployError
from pyinfra.api.state import StateStage


def refuse_no_wait() -> None:
    """Refuse `--no-wait`: hosts that fail in it are forgotten, and the run ends with 0. Raises DeployError."""
    if "--no-wait" in sys.argv:
        raise DeployError("--no-wait hides failed hosts: seen --no-wait, wanted a run that can fail; leave it out")


def fail_without_hosts() -> None:
    """At exit, fail a run that reached its connecting stage and had nobody to connect to."""
    atexit.register(_exit_code_without_hosts)


def _exit_code_without_hosts() -> None:
    if not state.initialised or state.current_stage < StateStage.Connect or state.activated_hosts or state.failed_hosts:
        return
    line = "no host was touched: seen 0 hosts, wanted at least one; check --limit and the inventory's path"
    print(line, file=sys.stderr, flush=True)
    sys.stdout.flush()
    # pyinfra has decided on 0 by now; only leaving at once can say otherwise.
    os._exit(1)
