"""DIMM slots, from the edac labels or else the SMBIOS table."""

from __future__ import annotations

import os
import re

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError, parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from typing import Any

EDAC = "/sys/devices/system/edac/mc"
SMBIOS = "/sys/firmware/dmi/tables/DMI"
"""The whole table, as dmidecode reads it: /sys/firmware/dmi/entries needs a module that nobody loads."""
DMI_VENDOR = "/sys/class/dmi/id/sys_vendor"
EDAC_LABEL = re.compile("CPU_SrcID#([0-9]+)_((?:[A-Za-z]+#[0-9]+_)+)DIMM#[0-9]+")
DELL_SLOT = re.compile("([A-D])([0-9]{1,2})")
SOCKET = re.compile("(?<![A-Z0-9])(?:CPU|PROC|P|SOCKET)[ _#-]?([0-9])(?![0-9])")
CHANNEL_LETTER = re.compile("(?:DIMM|[^A-Z])[ _-]?([A-L])[0-9]{1,2}$")
BANK_CHANNEL = re.compile("NODE([0-9])_CHANNEL([0-9])")


def parse_smbios(table: bytes) -> list[dict[str, Any]]:
    """The memory devices (type 17) of the SMBIOS table, as `Dimm` has them, with the `bank` too."""
    slots = []
    start = 0
    while start + 4 <= len(table) and table[start] != 127:
        length = table[start + 1]
        # Its strings follow, each with a NUL, and one more NUL ends them; without any it is two NULs.
        end = table.find(b"\0\0", start + length)
        if length < 4 or end < 0:
            raise ReadError("broken SMBIOS table at byte %d" % start)
        if table[start] == 17:
            slots.append(_memory_device(table[start : start + length], table[start + length : end].split(b"\0")))
        start = end + 2
    return slots


def _memory_device(fields: bytes, strings: list[bytes]) -> dict[str, Any]:
    def number(offset: int, size: int) -> int:
        return int.from_bytes(fields[offset : offset + size], "little")

    def string(offset: int) -> str:
        index = number(offset, 1)
        return strings[index - 1].decode("utf-8", "replace").strip() if 0 < index <= len(strings) else ""

    def speed(offset: int, extended: int) -> int | None:
        told = number(offset, 2)
        return (number(extended, 4) if told == 0xFFFF else told) or None

    size = number(0x0C, 2)
    # The top bit: KiB. 0x7FFF: in MiB in a wider field. 0xFFFF: unknown.
    wide = number(0x1C, 4) & 0x7FFFFFFF
    known = (size & 0x7FFF) << 10 if size & 0x8000 else (wide if size == 0x7FFF else size) << 20
    return {
        "label": string(0x10),
        "bank": string(0x11),
        "size": None if size == 0xFFFF else known,
        "rated_mts": speed(0x15, 0x54),
        "configured_mts": speed(0x20, 0x58),
    }


def locate(slots: list[tuple[str, str]], dell: bool) -> list[tuple[int | None, str | None]]:
    """Socket and channel of each (label, bank); None where the label has no known form."""
    letters = [DELL_SLOT.fullmatch(label) for label, _ in slots]
    if dell and slots and all(letters):
        return [_dell_slot(match[1], int(match[2]), len(slots)) for match in letters if match]
    places = [_place(label, bank) for label, bank in slots]
    # Some boards count their sockets from 0, others from 1.
    first = 0 if any(socket == 0 for socket, _, counted in places if counted) else 1
    return [(socket - first if counted and socket else socket, channel) for socket, channel, counted in places]


def _place(label: str, bank: str) -> tuple[int | None, str | None, bool]:
    """Socket, channel, and whether the socket still has to be counted from 0."""
    edac = EDAC_LABEL.fullmatch(label)
    if edac:
        return int(edac[1]), ".".join(re.findall("[0-9]+", edac[2])), False
    socket = SOCKET.search(label.upper()) or SOCKET.search(bank.upper())
    if not socket:
        return None, None, False
    letter, node = CHANNEL_LETTER.search(label.upper()), BANK_CHANNEL.search(bank.upper())
    channel = letter[1] if letter else "%s.%s" % (node[1], node[2]) if node else None
    return int(socket[1]), channel, True


def _dell_slot(letter: str, slot: int, slots: int) -> tuple[int, str | None]:
    # PowerEdge from Skylake-SP on: 12 or 16 slots a socket, first the white ones of every channel.
    channels = {24: 6, 32: 8}.get(slots)
    return ord(letter) - ord("A"), str((slot - 1) % channels) if channels else None


def read_edac(reader: Reader) -> list[dict[str, Any]]:
    """The DIMMs that the memory controllers' drivers found; empty slots are not among them."""
    labels = reader.matching(EDAC + "/mc*/dimm*/dimm_label", lambda path: reader.text(path).strip())
    folders = ((label, os.path.dirname(path)) for path, label in labels.items())
    sizes = ((label, reader.value(folder + "/size", parse_count)) for label, folder in folders)
    return [
        {"label": label, "bank": "", "size": size and size << 20, "rated_mts": None, "configured_mts": None}
        for label, size in sizes
    ]


def read_dimms(reader: Reader) -> list[dict[str, Any]] | None:
    """Every DIMM, from EDAC or else every slot from SMBIOS; None and a reason without either."""
    found = reader.find(SMBIOS, lambda: parse_smbios(reader.data(SMBIOS))) or []
    dimms = read_edac(reader)
    if not dimms and not found:
        reader.note("dimms", "no memory controller in EDAC and no SMBIOS table")
        return None
    if dimms:
        _add_speeds(reader, dimms, [slot for slot in found if slot["size"]])
    dimms = dimms or found
    vendor = reader.optional(DMI_VENDOR, str.strip) or ""
    places = locate([(dimm["label"], dimm.pop("bank")) for dimm in dimms], vendor.startswith("Dell"))
    return [dict(dimm, socket=socket, channel=channel) for dimm, (socket, channel) in zip(dimms, places)]


def _add_speeds(reader: Reader, dimms: list[dict[str, Any]], slots: list[dict[str, Any]]) -> None:
    """EDAC knows no speeds, and its labels are not SMBIOS's: only when all are alike is it clear whose they are."""
    names = ("rated_mts", "configured_mts")
    speeds = {tuple(slot[name] for name in names) for slot in slots}
    if len(slots) != len(dimms) or len(speeds) != 1:
        reader.note("dimms.speed", "EDAC does not tell it, and SMBIOS lists no such set of equal DIMMs")
        return
    for dimm in dimms:
        dimm.update(zip(names, next(iter(speeds))))
