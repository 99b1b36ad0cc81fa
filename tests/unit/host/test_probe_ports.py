"""Who listens: on this machine, and in tables as the kernel writes them."""

from __future__ import annotations

import os
import socket

import pytest

from ktfleet.host.probe.ports import parse_address, parse_listening, read_listeners
from ktfleet.host.probe.reader import Reader

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0000000000000000 100
   1: 0100007F:7530 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 4243 1 0000000000000000 100
   2: short
"""


@pytest.mark.parametrize(("text", "address"), [
    ("0100007F", "127.0.0.1"), ("00000000", "0.0.0.0"), ("00000000000000000000000000000000", "::"),
    ("00000000000000000000000001000000", "::1"), ("0000000000000000FFFF00000100007F", "127.0.0.1"),
])  # fmt: skip
def test_addresses(text: str, address: str) -> None:
    assert parse_address(text) == address


def test_only_what_listens_counts() -> None:
    assert parse_listening(TABLE) == [("0100007F", 30000, "4242")]


def test_a_listener_of_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (found,) = read_listeners(Reader("/"), [str(port)])
    assert (found["address"], found["port"], found["pid"]) == ("127.0.0.1", port, os.getpid())
    assert found["name"]
    assert read_listeners(Reader("/"), [str(port)]) == []
    assert read_listeners(Reader("/"), []) == []
