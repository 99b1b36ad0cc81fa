"""Nagle's algorithm is off on every connection of a fleet."""

import socket
import subprocess
import sys
from pathlib import Path

from ktfleet.pyinfra_api.transport import nodelay

ROOT = Path(__file__).parents[2]


def test_the_factory_sets_tcp_nodelay() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        transport = nodelay(client)
        try:
            assert transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        finally:
            transport.close()


def test_a_proxy_commands_socket_is_left_alone() -> None:
    one, two = socket.socketpair(socket.AF_UNIX)
    with one, two:
        nodelay(one).close()


def test_every_host_of_an_inventory_gets_it() -> None:
    pyinfra = Path(sys.executable).with_name("pyinfra")
    command = [pyinfra, "inventory/ws.py", "debug-inventory"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    said = shown.stdout + shown.stderr
    assert said.count('"transport_factory": "Function: nodelay"') == said.count("--> Groups:") > 0
