"""Inputs of the plan that could not be read: an offline plan goes on without them, a deploy does not."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.plan.places import BEFORE
from ktfleet.problem import Problem

_NODE = "/sys/devices/system/node/node"
_DO = "probe the host as root; a captured tree has to hold it"


def unknown(state: HostState) -> tuple[Problem, ...]:
    """One problem for each input without a value, with the probe's reason."""
    return (*_whole_inputs(state), *_cpu_fields(state), *_node_memories(state))


def _whole_inputs(state: HostState) -> Iterator[Problem]:
    inputs = (
        (state.os.id is None, "the distribution", ("os", "/etc/os-release")),
        (not state.cpus, "the CPUs", ("cpus", "/sys/devices/system/cpu/online")),
        (not state.nodes, "the NUMA nodes", ("nodes",)),
        (state.cpu_flags is None, "the CPU flags", ("/proc/cpuinfo",)),
        (state.kernel.cmdline is None, "the kernel command line", ("/proc/cmdline",)),
        (BEFORE in state.unreadable, f"the record of earlier values, {BEFORE},", (BEFORE,)),
    )
    for missing, what, places in inputs:
        if missing:
            # "probe": the probe itself broke and says how.
            reasons = (state.unreadable[place] for place in (*places, "probe") if place in state.unreadable)
            yield Problem(f"{what} cannot be read", next(reasons, "nothing"), "a value", _DO)


def _cpu_fields(state: HostState) -> Iterator[Problem]:
    for field in ("socket", "node", "siblings"):
        missing = [cpu.cpu for cpu in state.cpus if getattr(cpu, field) is None]
        if missing:
            cpus = f"{len(missing)} CPU{'' if len(missing) == 1 else 's'}"
            yield Problem(f"the {field} of {cpus} cannot be read", f"nothing for CPU {missing[0]}", "a value", _DO)


def _node_memories(state: HostState) -> Iterator[Problem]:
    for node in state.nodes:
        if node.mem_total is None:
            reason = state.unreadable.get(f"{_NODE}{node.node}/meminfo", "nothing")
            yield Problem(f"the memory of node {node.node} cannot be read", reason, "a value", _DO)
