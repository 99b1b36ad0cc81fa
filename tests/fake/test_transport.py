"""What every connection of a fleet has: no Nagle, any bytes as text, an end that pyinfra understands."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paramiko import Channel, RSAKey, ServerInterface, SSHClient, SSHException, Transport
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from pyinfra.connectors.util import read_output_buffers

from ktfleet.pyinfra_api.transport import nodelay

ROOT = Path(__file__).parents[2]
LATIN_1 = "Schön, dass du da bist\n".encode("latin-1")


class Server(ServerInterface):
    """An ssh server that lets everybody in, runs nothing, and answers when told to; or closes at the first command."""

    def __init__(self, transport: Transport, closes: bool) -> None:
        self.transport, self.closes = transport, closes
        self.channels: list[Channel] = []

    def check_auth_none(self, username: str) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Channel, command: bytes) -> bool:
        self.channels.append(channel)
        if self.closes:
            self.transport.close()
        return True

    def answer(self, output: bytes, errors: bytes) -> None:
        channel = self.channels.pop()
        channel.sendall(output)
        channel.sendall_stderr(errors)
        channel.send_exit_status(0)
        channel.close()


@contextmanager
def connected(*, closes: bool = False) -> Iterator[tuple[SSHClient, Server]]:
    """A client with the fleet's transport, over a socketpair."""
    ours, theirs = socket.socketpair()
    transport, client = Transport(theirs), SSHClient()
    server = Server(transport, closes)
    transport.add_server_key(RSAKey.generate(1024))
    transport.start_server(event=threading.Event(), server=server)
    client._transport = nodelay(ours)
    try:
        client._transport.start_client(timeout=10)
        client._transport.auth_none("anybody")
        yield client, server
    finally:
        client.close()
        transport.close()


def test_the_factory_sets_tcp_nodelay() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        transport = nodelay(client)
        try:
            assert transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert transport.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 90_000
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


def test_output_that_is_not_utf_8_is_read_with_marks() -> None:
    with connected() as (client, server):
        _, output, errors = client.exec_command("true")
        server.answer(LATIN_1 + "Grüße\n".encode(), b"\xf6, without a newline")
        read = read_output_buffers(output, errors, timeout=10, print_output=False, print_prefix="")
        assert output.channel.recv_exit_status() == 0
    assert read.stdout_lines == ["Sch\ufffdn, dass du da bist", "Grüße"]
    assert read.stderr_lines == ["\ufffd, without a newline"]


def test_a_connection_that_ends_is_an_exception_that_pyinfra_catches() -> None:
    with connected(closes=True) as (client, _), pytest.raises(SSHException, match="the connection was closed"):
        client.exec_command("true")
