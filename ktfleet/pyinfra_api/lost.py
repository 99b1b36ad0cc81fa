"""A connection that ends in the middle of a run: pyinfra fails the host, this says why and what to do."""

from __future__ import annotations

from typing import Any

from pyinfra import logger
from pyinfra.api import Host, State
from pyinfra.api.state import BaseStateCallback


class SayLost(BaseStateCallback):
    """One line for every operation that failed because its host does not answer any more."""

    @staticmethod
    def operation_host_error(state: State, host: Host, op_hash: str, *_: Any) -> None:
        """pyinfra's own message, if there is one, is paramiko's word for it."""
        if lost(host):
            operation = ", ".join(sorted(state.get_op_meta(op_hash).names))
            line = f"the connection was lost: seen its end in '{operation}', wanted an answer; run deploy.py again"
            host.log_styled(line, fg="red", log_func=logger.error)


def lost(host: Host) -> bool:
    """Whether the ssh connection has ended. Other connectors have none to lose."""
    client = getattr(host.connector, "client", None)
    transport = client.get_transport() if client is not None else None
    return transport is not None and not transport.is_active()
