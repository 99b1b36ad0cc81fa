"""Read one host, print it as one line of JSON: the keys of `state.HostState`, ASCII only.

The sources of this package are sent to the host and run there (bundle.py), or imported for `collect`. So: stdlib
only, Python >= 3.8, no subprocess, nothing else of ktfleet. It decides nothing and never raises: what cannot be read
is null (or left out of a map) and `unreadable` says why, keyed by the absolute path on the host, or by the field or
the requested name where no single path is to blame.
With a root other than / it reads a captured tree and never leaves it through a symlink.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial

from ktfleet.host.probe.accounts import read_accounts, read_folders
from ktfleet.host.probe.apt_conf import read_apt
from ktfleet.host.probe.asked import parse_before, read_sysctl, read_sysfs, read_texts
from ktfleet.host.probe.boot import read_boot, read_cloud_init, read_kernel, read_os, read_reboot_required
from ktfleet.host.probe.cpus import CPU, dma_latency, read_cpus, read_idle_states, read_machine, read_nodes
from ktfleet.host.probe.devices import read_display_manager, read_displays
from ktfleet.host.probe.dimms import read_dimms
from ktfleet.host.probe.nvidia import parse_modules, read_nvidia
from ktfleet.host.probe.packages import read_packages
from ktfleet.host.probe.ports import read_listeners
from ktfleet.host.probe.reader import Reader, read_live
from ktfleet.host.probe.storage import parse_swaps, read_disks, read_mounts
from ktfleet.host.probe.units import clock_synchronised, read_journald, read_units
from ktfleet.host.probe.values import ReadError, parse_line, seen

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Iterable, Sequence
    from typing import Any

SCHEMA = 1


def glibc_version() -> str:
    """Version of the running C library, such as "2.36"."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        raise ReadError("not glibc: " + seen(name))
    return version


def collect(
    root: str = "/",
    sysctl: Iterable[str] = (),
    sysfs: Iterable[str] = (),
    files: Iterable[str] = (),
    links: Iterable[str] = (),
    before: str | None = None,
    mounts: Sequence[str] = (),
    units: Iterable[str] = (),
    environment: Sequence[str] = (),
    packages: Sequence[str] = (),
    apt: Iterable[str] = (),
    journald: Iterable[str] = (),
    texts: Iterable[str] = (),
    accounts: Sequence[str] = (),
    folders: Iterable[str] = (),
    ports: Sequence[str] = (),
) -> dict[str, Any]:
    """The state of the host whose files lie below `root`, in plain JSON types."""
    reader = Reader(root)
    # Asking CPUID needs machine code: `ktfleet probe` does it, where py-cpuinfo is.
    reader.note("cpu_flags_cpuid", "the probe does not ask CPUID")
    kernel = read_kernel(reader)
    nodes = read_nodes(reader)
    kept = reader.find(before, partial(reader.parsed, before, parse_before)) if before else None
    record = {
        "schema": SCHEMA,
        "os": read_os(reader),
        "kernel": kernel,
        "cpus": read_cpus(reader, nodes),
        "nodes": nodes,
        **read_machine(reader),
        "cpu_flags_cpuid": None,
        "glibc": read_live(reader, "glibc", glibc_version),
        "python": read_live(reader, "python", lambda: "%d.%d.%d" % sys.version_info[:3]),
        "idle_driver": reader.value(CPU + "/cpuidle/current_driver", parse_line),
        "idle_states": read_idle_states(reader),
        "cpu_dma_latency_us": read_live(reader, "cpu_dma_latency_us", dma_latency),
        "swaps": reader.value("/proc/swaps", parse_swaps),
        "dimms": read_dimms(reader),
        "displays": read_displays(reader),
        "display_manager": read_display_manager(reader),
        "modules": reader.value("/proc/modules", parse_modules),
        "nvidia": read_nvidia(reader, kernel["release"]),
        "disks": read_disks(reader),
        "mounts": read_mounts(reader, mounts),
        "units": read_units(reader, units, environment),
        "packages": read_packages(reader, packages),
        "apt": read_apt(reader, apt),
        "journald": read_journald(reader, journald),
        **read_accounts(reader, accounts),
        "folders": read_folders(reader, folders),
        "listeners": read_listeners(reader, ports),
        "cloud_init": read_cloud_init(reader),
        "reboot_required": read_reboot_required(reader),
        "clock_synchronised": read_live(reader, "clock_synchronised", clock_synchronised),
        "boot": read_boot(reader, kernel["cmdline"]),
        "sysctl": read_sysctl(reader, sysctl),
        "sysfs": read_sysfs(reader, sysfs),
        "files": {path: reader.get(path, partial(reader.sha256, path)) for path in files},
        "links": {path: reader.get(path, partial(reader.link, path)) for path in links},
        "texts": read_texts(reader, texts),
        "before": kept or {},
        "unreadable": reader.reasons,
    }
    # Names that are not UTF-8 arrive as lone surrogates, which JSON readers refuse.
    plain: dict[str, Any] = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line of JSON; 0, or 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="probe", allow_abbrev=False, description="Print this host's state as JSON.")
    parser.add_argument("--root", default="/", help="folder of a captured tree (proc/, sys/, etc/)")
    parser.add_argument("--before", metavar="PATH", help="record of the values before our first change")
    for option, name, metavar in (
        ("--sysctl", "sysctl", "NAME"),
        ("--sysfs", "sysfs", "PATTERN"),
        ("--file", "files", "PATH"),
        ("--link", "links", "PATH"),
        ("--mount", "mounts", "PATH"),
        ("--unit", "units", "NAME"),
        ("--environment", "environment", "NAME"),
        ("--package", "packages", "PATTERN"),
        ("--apt", "apt", "OPTION"),
        ("--journald", "journald", "OPTION"),
        ("--text", "texts", "PATH"),
        ("--account", "accounts", "NAME_OR_NUMBER"),
        ("--folder", "folders", "PATH"),
        ("--port", "ports", "NUMBER"),
    ):
        parser.add_argument(option, nargs="*", default=[], action="extend", dest=name, metavar=metavar)
    arguments = parser.parse_args(argv)
    try:
        record = collect(**vars(arguments))
    except Exception as error:  # One line of JSON whatever happens: the plan refuses on it, by name.
        record = {"schema": SCHEMA, "unreadable": {"probe": "failed: %s" % ascii(error)}}
    print(json.dumps(record))
    return 0
