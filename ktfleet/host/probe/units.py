"""systemd's services and their limits, the journal's configuration, the clock."""

from __future__ import annotations

import re

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError, parse_int

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Iterable, Sequence
    from typing import Any

CGROUP = "/sys/fs/cgroup"
SLICE = CGROUP + "/system.slice"
SYSTEMD = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")


def read_units(reader: Reader, units: Iterable[str], environment: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The asked services as their control groups show them; left out with a reason without cgroup v2."""
    asked = list(units)
    if not asked or reader.exists(CGROUP + "/cgroup.controllers"):
        return {unit: read_unit(reader, SLICE + "/" + unit, environment) for unit in asked}
    for unit in asked:
        reader.note(unit, "no cgroup v2 in " + CGROUP)
    return {}


def read_unit(reader: Reader, folder: str, environment: Sequence[str]) -> dict[str, Any]:
    """One service. Its limits are those of its own group and of the groups around it."""
    pids = sorted(_pids(reader, folder))

    # A service that does not run (yet) has no group of its own; those around it will limit it all the same.
    def smallest(file: str) -> str | None:
        texts = (reader.optional("%s/%s" % (group, file), _limit) for group in (folder, SLICE, CGROUP))
        numbers = [number for number in texts if number is not None]
        return str(min(numbers)) if numbers else None

    def nearest(file: str) -> str | None:
        texts = [reader.optional("%s/%s" % (group, file), str.strip) for group in (folder, SLICE)]
        return next((text for text in texts if text and not text.startswith("max")), None)

    return {
        "active": bool(pids),
        "environment": _environment(reader, pids[0], environment) if pids and environment else {},
        "memory_max": smallest("memory.max"),
        "memory_high": smallest("memory.high"),
        "memory_swap_max": smallest("memory.swap.max"),
        "cpus": nearest("cpuset.cpus"),
        "cpu_max": nearest("cpu.max"),
    }


def _pids(reader: Reader, folder: str) -> list[int]:
    """The processes of a group, or of the groups below it: a service with delegation keeps none itself."""
    for pattern in ("/cgroup.procs", "/*/cgroup.procs"):
        found = reader.matching(folder + pattern, lambda path: reader.text(path).split())
        pids = [int(word) for words in found.values() for word in words if re.fullmatch("[0-9]{1,9}", word)]
        if pids:
            return pids
    return []


def _limit(text: str) -> int | None:
    return None if text.strip() == "max" else parse_int(text)


def _environment(reader: Reader, pid: int, names: Sequence[str]) -> dict[str, str]:
    """The named variables only: the others may be secrets."""
    text = reader.optional("/proc/%d/environ" % pid, str) or ""
    pairs = (word.partition("=") for word in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals and name in names}


def parse_journald(text: str) -> dict[str, str]:
    """The assignments in the section [Journal] of one file."""
    values: dict[str, str] = {}
    section = ""
    # A comment between the lines of a value does not end it.
    for line in re.sub(r"\\\n(?:[ \t]*[#;].*\n)*", " ", text).splitlines():
        name, equals, value = line.strip().partition("=")
        if name.startswith("["):
            section = line.strip()
        elif section == "[Journal]" and equals and name[:1] not in ("#", ";"):
            values[name.strip()] = value.strip()
    return values


def read_journald(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """The asked options of journald that are set: the first main file, then the drop-ins by name."""
    asked = list(names)
    mains = [folder + "/journald.conf" for folder in SYSTEMD if asked and reader.exists(folder + "/journald.conf")]
    drop_ins: dict[str, str] = {}
    for folder in reversed(SYSTEMD) if asked else ():
        names_here = reader.names(folder + "/journald.conf.d")
        drop_ins.update((name, "%s/journald.conf.d/%s" % (folder, name)) for name in names_here)
    files = [*mains[:1], *(drop_ins[name] for name in sorted(drop_ins) if name.endswith(".conf"))]
    values: dict[str, str] = {}
    for path in files:
        if not reader.masked(path):
            values.update(reader.optional(path, parse_journald) or {})
    return {name: values[name] for name in asked if values.get(name)}


def clock_synchronised() -> bool:
    """Whether something keeps the clock right, by timedatectl's rule: the kernel knows an error below 16 s.

    STA_UNSYNC is not asked: chrony sets it, too, to keep the kernel from writing the hardware clock.
    """
    import ctypes

    timex = (ctypes.c_long * 64)()  # More than the struct; modes, the first field, 0: only read.
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        raise ReadError("adjtimex failed")
    return bool(timex[3] < 16_000_000)
