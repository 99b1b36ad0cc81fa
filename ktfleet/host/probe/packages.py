"""dpkg: versions, locks, interrupted installations."""

from __future__ import annotations

import fnmatch
import os
import re
from functools import partial

from ktfleet.host.probe.reader import LIST_LIMIT, Reader, read_live
from ktfleet.host.probe.values import parse_line

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Sequence
    from typing import Any

DPKG = "/var/lib/dpkg"
DPKG_HEAD = re.compile(rb"Package: (\S+)\n(?:.+\n)*?Status: \S+ \S+ (\S+)")
UNFINISHED = (b"half-installed", b"half-configured", b"unpacked")
INSTALLED = (b"installed", b"triggers-awaited", b"triggers-pending")
LOCKS = (
    DPKG + "/lock-frontend",
    DPKG + "/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)


def read_packages(reader: Reader, patterns: Sequence[str]) -> dict[str, Any]:
    """What dpkg says, and who holds it."""
    status = reader.get(DPKG + "/status", lambda: reader.data(DPKG + "/status", LIST_LIMIT)) or b""
    installed, unfinished = parse_dpkg(status, patterns)
    steps = reader.get(DPKG + "/updates", partial(reader.listing, DPKG + "/updates"))
    return {
        "installed": installed,
        "locked_by": read_live(reader, "packages.locked_by", partial(read_lock, reader)),
        # dpkg keeps its unfinished steps in files whose names are numbers, and refuses to start over them.
        "interrupted": None if steps is None else any(re.fullmatch("[0-9]+", name) for name in steps),
        "unfinished": unfinished,
    }


def parse_dpkg(status: bytes, patterns: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Versions of the installed packages that match, and the packages that are half installed."""
    asked = re.compile(("|".join(map(fnmatch.translate, patterns)) or "(?!)").encode("utf-8", "replace"))
    # The file has megabytes: only the paragraphs that matter are decoded.
    chosen, unfinished, native = [], set(), ""
    for paragraph in status.split(b"\n\n"):
        match = DPKG_HEAD.match(paragraph)
        if not match:
            continue
        name, condition = match.groups()
        if name == b"dpkg":
            native = _field(paragraph, b"Architecture")
        if condition in UNFINISHED:
            unfinished.add(name.decode("utf-8", "replace"))
        elif condition in INSTALLED and asked.match(name):
            fields = (_field(paragraph, field) for field in (b"Architecture", b"Version"))
            chosen.append((name.decode("utf-8", "replace"), *fields))
    # The same package of two architectures: the other one is named as dpkg names it.
    return {
        name if kind in ("all", native or kind) else name + ":" + kind: version for name, kind, version in chosen
    }, sorted(unfinished)


def _field(paragraph: bytes, name: bytes) -> str:
    match = re.search(b"\n" + name + rb":[ \t]*(.*)", paragraph)
    return match[1].decode("utf-8", "replace").strip() if match else ""


def read_lock(reader: Reader) -> str | None:
    """Who holds a lock of dpkg or apt."""
    for path in LOCKS:
        pid = reader.find(path, partial(_lock_owner, reader, path))
        if pid:
            name = reader.optional("/proc/%d/comm" % pid, parse_line)
            return "%s (pid %d)" % (name or "a process", pid)
    return None


def _lock_owner(reader: Reader, path: str) -> int:
    """The process that keeps others from locking this file; 0: none.

    The kernel is asked (F_GETLK takes no lock). /proc/locks has device numbers that are not those of stat on btrfs.
    """
    import fcntl
    import struct

    layout = "hhqqi4x"  # struct flock: type, whence, start, length, pid.
    with reader.open(path) as file:
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)
