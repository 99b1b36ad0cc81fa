"""Who listens on the asked TCP ports."""

from __future__ import annotations

import re
import struct

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import parse_line

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Sequence
    from typing import Any

TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
LISTENS = "0A"


def read_listeners(reader: Reader, ports: Sequence[str]) -> list[dict[str, Any]]:
    """Address, port, and the process with its unit, where it can be told."""
    found = []
    for table in TABLES if ports else ():
        for address, port, inode in reader.optional(table, parse_listening) or ():
            if str(port) in ports:
                found.append({"address": parse_address(address), "port": port, **_owner(reader, inode)})
    return found


def parse_listening(text: str) -> list[tuple[str, int, str]]:
    """(address as the kernel writes it, port, inode of the socket) of each line of /proc/net/tcp that listens."""
    rows = (line.split() for line in text.splitlines()[1:])
    return [
        (row[1].partition(":")[0], int(row[1].partition(":")[2], 16), row[9])
        for row in rows
        if len(row) > 9 and row[3] == LISTENS
    ]


def parse_address(text: str) -> str:
    """The kernel writes the address as words of its own byte order, which is little-endian here."""
    import ipaddress

    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(struct.pack("<%dI" % len(words), *words))
    return str(getattr(address, "ipv4_mapped", None) or address)


def _owner(reader: Reader, inode: str) -> dict[str, Any]:
    """The process that holds a socket; another user's can only be seen by root."""
    wanted = "socket:[%s]" % inode
    for pid in reader.names("/proc"):
        if pid.isdecimal() and wanted in _sockets(reader, "/proc/%s/fd" % pid):
            group = reader.optional("/proc/%s/cgroup" % pid, str.strip) or ""
            unit = re.search(r"/([^/]+\.service)(?:/|$)", group)
            name = reader.optional("/proc/%s/comm" % pid, parse_line)
            return {"pid": int(pid), "name": name, "unit": unit[1] if unit else None}
    return {"pid": None, "name": None, "unit": None}


def _sockets(reader: Reader, folder: str) -> list[str]:
    """What a process has open; one that has just ended has nothing."""
    links = []
    try:
        for name in reader.listing(folder):
            links.append(reader.link("%s/%s" % (folder, name)))
    except (OSError, ValueError):
        pass
    return links
