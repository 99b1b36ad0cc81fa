"""PCI display devices and who shows a desktop."""

from __future__ import annotations

import os
import re
from functools import partial

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError, parse_count, parse_flag, parse_hex, parse_line

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from typing import Any

PCI = "/sys/bus/pci/devices"
PREFETCHABLE_MEMORY = 0x2200
DISPLAY_MANAGER = "/etc/systemd/system/display-manager.service"


def parse_bars(text: str) -> int:
    """The size of the largest prefetchable memory region of a PCI device's `resource`."""
    rows = re.findall("^0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16})$", text, re.MULTILINE)
    sizes = []
    for row in rows[:6]:  # Then comes the ROM, and the windows of a bridge.
        start, end, flags = (int(word, 16) for word in row)
        if flags & PREFETCHABLE_MEMORY == PREFETCHABLE_MEMORY and 0 < end - start < 1 << 62:
            sizes.append(end - start + 1)
    if not sizes:
        raise ReadError("no prefetchable memory region")
    return max(sizes)


def parse_node(text: str) -> int:
    """The NUMA node of a device."""
    if text.strip() == "-1":
        raise ReadError("the firmware names no node")
    return parse_count(text)


def read_displays(reader: Reader) -> list[dict[str, Any]] | None:
    """PCI devices of class 0x03, in the order of their addresses. None: PCI could not be read."""
    addresses = reader.get(PCI, partial(reader.listing, PCI))
    if addresses is None:
        return None
    classes = ((address, reader.optional("%s/%s/class" % (PCI, address), str)) for address in addresses)
    return [_display(reader, address) for address, kind in classes if kind and kind.startswith("0x03")]


def _display(reader: Reader, address: str) -> dict[str, Any]:
    folder = "%s/%s/" % (PCI, address)
    driver = reader.find(folder + "driver", partial(reader.link, folder + "driver"))
    monitors = reader.matching(folder + "drm/card*/card*-*/status", lambda path: reader.text(path).strip())
    plugged = (path.split("/")[-2] for path, status in monitors.items() if status == "connected")
    return {
        "address": address,
        "vendor": reader.value(folder + "vendor", parse_hex),
        "device": reader.value(folder + "device", parse_hex),
        "numa_node": reader.value(folder + "numa_node", parse_node),
        "driver": driver and os.path.basename(driver),
        "link_width": reader.value(folder + "current_link_width", parse_count),
        "link_speed": reader.value(folder + "current_link_speed", parse_line),
        "max_link_width": reader.value(folder + "max_link_width", parse_count),
        "max_link_speed": reader.value(folder + "max_link_speed", parse_line),
        "bar1_bytes": reader.value(folder + "resource", parse_bars),
        "boot_vga": reader.value(folder + "boot_vga", parse_flag),
        "monitors": [name.partition("-")[2] for name in plugged],
    }


def read_display_manager(reader: Reader) -> str | None:
    """The unit that display-manager.service stands for, unless it is masked."""
    target = reader.find(DISPLAY_MANAGER, partial(reader.link, DISPLAY_MANAGER))
    return os.path.basename(target) if target and target != "/dev/null" else None
