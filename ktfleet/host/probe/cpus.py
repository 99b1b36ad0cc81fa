"""Processors, NUMA nodes and idle states."""

from __future__ import annotations

import os
import re
import stat
import sys

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError, parse_count, parse_int, parse_ints, parse_line, seen

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Iterable
    from typing import Any

CPU_LIMIT = 8192
"""x86 Linux has no more CPUs (CONFIG_NR_CPUS): a garbled range must not eat the memory."""
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
DMA_LATENCY = "/dev/cpu_dma_latency"


def parse_cpulist(text: str) -> list[int]:
    """The kernel's list format ("0-19,40-59", "0,2", "") as sorted numbers."""
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = re.fullmatch("([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < CPU_LIMIT:
            raise ReadError("not a CPU list: " + seen(text.strip()))
        cpus.update(range(first, last + 1))
    return sorted(cpus)


def parse_kib(text: str, name: str) -> int:
    """Bytes of one line of a meminfo, the machine's or a node's ("Node 0 MemTotal:  1024 kB")."""
    match = re.search(r"^(?:Node\s+[0-9]+\s+)?%s:\s*([0-9]{1,15}) kB\s*$" % name, text, re.MULTILINE)
    if not match:
        raise ReadError("no %s in kB" % name)
    return int(match[1]) * 1024


def parse_cpuinfo(text: str, name: str) -> str:
    """The value of one key in the first block of /proc/cpuinfo."""
    match = re.search(r"^%s[ \t]*:[ \t]*(\S.*)$" % name, text, re.MULTILINE)
    if not match:
        raise ReadError("no '%s'" % name)
    return match[1].strip()


def read_node(reader: Reader, number: int) -> dict[str, Any]:
    """One NUMA node; sizes in bytes, huge pages of 2 MiB."""
    folder = "%s/node%d" % (NODE, number)
    meminfo, pages = folder + "/meminfo", folder + "/hugepages/hugepages-2048kB/"
    text = reader.value(meminfo, str)
    total, free = reader.each(meminfo, text, parse_kib, ("MemTotal", "MemFree"))
    return {
        "node": number,
        "cpus": reader.value(folder + "/cpulist", parse_cpulist) or [],
        "mem_total": total,
        "mem_free": free,
        "distances": reader.value(folder + "/distance", parse_ints),
        "hugepages_total": reader.value(pages + "nr_hugepages", parse_int),
        "hugepages_free": reader.value(pages + "free_hugepages", parse_int),
    }


def read_nodes(reader: Reader) -> list[dict[str, Any]]:
    """Every NUMA node, those without CPUs or memory too."""
    numbers = _numbered(reader.names(NODE), "node")
    if not numbers:
        reader.note("nodes", "no node folder in " + NODE)
    return [read_node(reader, number) for number in numbers]


def read_cpu(reader: Reader, cpu: int, node: int | None) -> dict[str, Any]:
    """One online logical CPU."""
    topology = "%s/cpu%d/topology/" % (CPU, cpu)

    def siblings(text: str) -> list[int]:
        cpus = parse_cpulist(text)
        if cpu not in cpus:
            raise ReadError("does not list CPU %d: %s" % (cpu, seen(text.strip())))
        return cpus

    return {
        "cpu": cpu,
        "core": reader.value(topology + "core_id", parse_int),
        "socket": reader.value(topology + "physical_package_id", parse_int),
        "node": node,
        "siblings": reader.first((topology + "thread_siblings_list", topology + "core_cpus_list"), siblings),
    }


def read_cpus(reader: Reader, nodes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The online logical CPUs."""
    node_of = {cpu: node["node"] for node in nodes for cpu in node["cpus"]}
    cpus = reader.value(CPU + "/online", parse_cpulist) or _cpus_with_entries(reader)
    if not cpus:
        reader.note("cpus", "no online CPU in " + CPU)
    for cpu in cpus:
        if cpu not in node_of:
            reader.note("cpu%d.node" % cpu, "no node lists this CPU")
    return [read_cpu(reader, cpu, node_of.get(cpu)) for cpu in cpus]


def _cpus_with_entries(reader: Reader) -> list[int]:
    """CPUs whose folder has a topology or a node entry: an offline CPU has neither."""

    def online(cpu: int) -> bool:
        entries = reader.names("%s/cpu%d" % (CPU, cpu))
        return "topology" in entries or bool(_numbered(entries, "node"))

    return [cpu for cpu in _numbered(reader.names(CPU), "cpu") if online(cpu)]


def _numbered(names: Iterable[str], prefix: str) -> list[int]:
    matches = (re.fullmatch(prefix + "([0-9]{1,5})", name) for name in names)
    return sorted({int(match[1]) for match in matches if match})


def read_idle_states(reader: Reader) -> list[dict[str, Any]]:
    """The C-states of CPU 0; one whose name or latency cannot be read is left out."""
    folder = CPU + "/cpu0/cpuidle"
    numbers = _numbered(reader.names(folder), "state")
    if not numbers:
        reader.note("idle_states", "no state in " + folder)
    states = (_idle_state(reader, "%s/state%d/" % (folder, number)) for number in numbers)
    return [state for state in states if None not in (state["name"], state["latency_us"])]


def _idle_state(reader: Reader, folder: str) -> dict[str, Any]:
    return {
        "name": reader.value(folder + "name", parse_line),
        "latency_us": reader.value(folder + "latency", parse_count),
        "disabled": reader.optional(folder + "disable", lambda text: text.strip() != "0"),
    }


def dma_latency() -> int:
    """The present cap in microseconds. Opening the device for reading asks for no cap of our own."""
    handle = os.open(DMA_LATENCY, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISCHR(os.fstat(handle).st_mode):
            raise ReadError("not a character device")
        data = os.read(handle, 4)
    finally:
        os.close(handle)
    if len(data) != 4:
        raise ReadError("not 4 bytes")
    return int.from_bytes(data, sys.byteorder, signed=True)


def read_machine(reader: Reader) -> dict[str, Any]:
    """Processor model and flags, memory in bytes, cpufreq driver."""
    cpuinfo = reader.get("/proc/cpuinfo", lambda: reader.text("/proc/cpuinfo", cut=True))
    model, flags = reader.each("/proc/cpuinfo", cpuinfo, parse_cpuinfo, ("model name", "flags"))
    meminfo = reader.value("/proc/meminfo", str)
    total, available = reader.each("/proc/meminfo", meminfo, parse_kib, ("MemTotal", "MemAvailable"))
    return {
        "cpu_model": model,
        "cpu_flags": None if flags is None else flags.split(),
        "mem_total": total,
        "mem_available": available,
        "cpufreq_driver": reader.value(CPU + "/cpu0/cpufreq/scaling_driver", parse_line),
    }
