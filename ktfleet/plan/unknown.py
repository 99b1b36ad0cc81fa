"""Inputs of the plan that could not be read: an offline plan goes on without them, a deploy does not."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import account, storage
from ktfleet.plan.places import BEFORE, DPKG_STATUS, PCI_DEVICES
from ktfleet.problem import Problem

_NODE = "/sys/devices/system/node/node"
_DO = "probe the host as root; a captured tree has to hold it"


def unknown(state: HostState, config: Workstation) -> tuple[Problem, ...]:
    """One problem for each input without a value, with the probe's reason."""
    return (
        *_whole_inputs(state, config),
        *_boot_loader(state, config),
        *_cpu_fields(state),
        *_node_memories(state),
        *_mounts(state, config),
        *account.unread(state),
    )


def _whole_inputs(state: HostState, config: Workstation) -> Iterator[Problem]:
    inputs = (
        (state.os.id is None, "the distribution", ("os", "/etc/os-release")),
        (not state.cpus, "the CPUs", ("cpus", "/sys/devices/system/cpu/online")),
        (not state.nodes, "the NUMA nodes", ("nodes",)),
        (state.cpu_flags is None, "the CPU flags", ("/proc/cpuinfo",)),
        (state.kernel.boot_id is None, "the boot id", ("/proc/sys/kernel/random/boot_id",)),
        (state.kernel.cmdline is None, "the kernel command line", ("/proc/cmdline",)),
        (state.packages.interrupted is None, "whether dpkg was interrupted", ("/var/lib/dpkg/updates",)),
        (DPKG_STATUS in state.unreadable, "the installed packages", (DPKG_STATUS,)),
        (config.gpu is not None and state.displays is None, "the PCI devices", (PCI_DEVICES,)),
        (BEFORE in state.unreadable, f"the record of earlier values, {BEFORE},", (BEFORE,)),
    )
    for missing, what, places in inputs:
        if missing:
            yield _problem(what, state, *places, "probe")


def _problem(what: str, state: HostState, *places: str) -> Problem:
    """With the first reason that the probe gave. "probe": the probe itself broke and says how."""
    reasons = (state.unreadable[place] for place in places if place in state.unreadable)
    return Problem(f"{what} cannot be read", next(reasons, "nothing"), "a value", _DO)


def _boot_loader(state: HostState, config: Workstation) -> Iterator[Problem]:
    """Only of interest when something is to be put on the command line."""
    if not config.kernel_command_line or state.boot.loader == "systemd-boot":
        return
    if state.boot.loader is None:
        yield _problem("the boot loader", state, "boot.loader")
    elif state.boot.next_cmdline is None:
        yield _problem("the command line of the next boot", state, "/boot/grub/grub.cfg", "boot.next_cmdline")


def _mounts(state: HostState, config: Workstation) -> Iterator[Problem]:
    for path in storage.asked_paths(config):
        if path not in state.mounts:
            yield _problem(f"the file system of {path}", state, path)


def _cpu_fields(state: HostState) -> Iterator[Problem]:
    for field in ("socket", "node", "siblings"):
        missing = [cpu.cpu for cpu in state.cpus if getattr(cpu, field) is None]
        if missing:
            cpus = f"{len(missing)} CPU{'' if len(missing) == 1 else 's'}"
            seen = state.unreadable.get(f"cpu{missing[0]}.{field}", "nothing")
            yield Problem(f"the {field} of {cpus} cannot be read", f"{seen} for CPU {missing[0]}", "a value", _DO)


def _node_memories(state: HostState) -> Iterator[Problem]:
    for node in state.nodes:
        if node.mem_total is None:
            reason = state.unreadable.get(f"{_NODE}{node.node}/meminfo", "nothing")
            yield Problem(f"the memory of node {node.node} cannot be read", reason, "a value", _DO)
