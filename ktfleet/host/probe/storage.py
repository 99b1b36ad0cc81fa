"""Disks, file systems and swap."""

from __future__ import annotations

import os
import re
from functools import partial

from ktfleet.host.probe.reader import NOT_RECORDED, Reader
from ktfleet.host.probe.values import ReadError, parse_count, parse_flag, parse_line

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Sequence
    from typing import Any

BLOCK = "/sys/block"
NO_DISK = re.compile(
    "(?:loop|ram|zram|dm-|sr|scd|md|fd|nbd|zd|bcache|drbd|rbd)[0-9]|nvme[0-9]+c[0-9]+n|mmcblk[0-9]+[br]"
)
MOUNTS = ("/proc/self/mounts", "/proc/mounts")


def parse_swaps(text: str) -> list[dict[str, Any]]:
    """/proc/swaps; its sizes are KiB."""
    rows = re.findall(r"^(\S+)\s+\S+\s+([0-9]{1,12})\s+([0-9]{1,12})\s+-?[0-9]+\s*$", text, re.MULTILINE)
    return [{"device": unescape(name), "size": int(size) << 10, "used": int(used) << 10} for name, size, used in rows]


def unescape(text: str) -> str:
    """A path as /proc/mounts and /proc/swaps print it: blanks and backslashes are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def read_disks(reader: Reader) -> list[dict[str, Any]]:
    """Block devices that are disks: neither partitions nor made of other devices."""
    names = reader.get(BLOCK, partial(reader.listing, BLOCK)) or []
    return [_disk(reader, name) for name in names if not NO_DISK.match(name)]


def _disk(reader: Reader, name: str) -> dict[str, Any]:
    folder = "%s/%s/" % (BLOCK, name)
    sectors = reader.value(folder + "size", parse_count)
    return {
        "name": name,
        "size": sectors if sectors is None else sectors * 512,  # Whatever the disk's own sectors are.
        "rotational": reader.value(folder + "queue/rotational", parse_flag),
        "model": reader.optional(folder + "device/model", parse_line),
    }


def parse_mounts(text: str) -> dict[str, tuple[str, str, str]]:
    """Mount point -> device, type, options. The last one on a point hides the others."""
    rows = (line.split(" ") for line in text.splitlines())
    return {unescape(row[1]): (unescape(row[0]), row[2], row[3]) for row in rows if len(row) >= 4}


def read_mounts(reader: Reader, paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each path the file system that holds it, or would; left out with a reason where none can be found."""
    table = reader.first(MOUNTS, parse_mounts) if paths else None
    if table is None:
        return {}
    if not reader.live:
        reader.note("mounts", NOT_RECORDED)
    found = ((path, reader.get(path, partial(_mount, reader, table, path))) for path in paths)
    return {path: mount for path, mount in found if mount is not None}


def _mount(reader: Reader, table: dict[str, tuple[str, str, str]], path: str) -> dict[str, Any]:
    real = reader.real(path)
    points = [point for point in table if point == "/" or real == point or real.startswith(point + "/")]
    if not points:
        raise ReadError("no mount holds it")
    point = max(points, key=len)
    device, kind, options = table[point]
    room = reader.get(point, lambda: os.statvfs(point)) if reader.live else None
    return {
        "mount": point,
        "device": device,
        "type": kind,
        "read_only": "ro" in options.split(","),
        "size": room and room.f_blocks * room.f_frsize,
        "free": room and room.f_bavail * room.f_frsize,
    }
