"""Host states for tests of the pure decisions, without a file system."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ktfleet.host.state import SCHEMA, HostState
from ktfleet.plan.settings import GOVERNOR, NODE_HUGEPAGES, THP_DEFRAG, THP_ENABLED
from tests.trees import CPU_FLAGS, CPU_MODEL, Numbering, pus

GIB = 1024**3


def workstation(
    *, numbering: Numbering = "linear", node_gib: tuple[float, ...] = (126, 126), **seats: Any
) -> HostState:
    """A freshly installed workstation of the fleet; `seats` as in trees.pus."""
    found = pus(numbering=numbering, **seats)
    siblings: dict[tuple[int, int], list[int]] = {}
    for pu in found:
        siblings.setdefault((pu.socket, pu.core), []).append(pu.cpu)
    cpus = [
        {
            "cpu": pu.cpu,
            "core": pu.core_id,
            "socket": pu.socket,
            "node": pu.node,
            "siblings": siblings[pu.socket, pu.core],
        }
        for pu in found
    ]
    nodes = [
        {
            "node": node,
            "cpus": [pu.cpu for pu in found if pu.node == node],
            "mem_total": int(size * GIB),
            "mem_free": int(size * GIB),
        }
        for node, size in enumerate(node_gib)
    ]
    return HostState.model_validate({**FRESH, "cpus": cpus, "nodes": nodes})


FRESH: dict[str, Any] = {
    "schema": SCHEMA,
    "os": {"id": "debian", "version_id": "12"},
    "kernel": {"release": "6.1.0", "boot_id": "a", "cmdline": "BOOT_IMAGE=/boot/vmlinuz root=UUID=1 ro quiet"},
    "cpu_model": CPU_MODEL,
    "cpu_flags": CPU_FLAGS.split(),
    "mem_total": 252 * GIB,
    "boot": {"loader": "grub", "next_cmdline": "root=UUID=1 ro quiet"},
    "sysctl": {"kernel.numa_balancing": "1", "vm.zone_reclaim_mode": "0", "vm.swappiness": "60"},
    "sysfs": {
        THP_ENABLED: "always [madvise] never",
        THP_DEFRAG: "always defer defer+madvise [madvise] never",
        **{NODE_HUGEPAGES.replace("node*", f"node{node}"): "0" for node in (0, 1)},
        **{GOVERNOR.replace("cpu*", f"cpu{cpu}"): "powersave" for cpu in (0, 1, 2)},
    },
}
"""Everything but CPUs and nodes, as a fresh Debian 12 shows it."""


@st.composite
def hosts(draw: st.DrawFn) -> HostState:
    """Any host whose sibling and node lists are consistent: CPUs numbered at random, cores of 1 or 2 PUs."""
    nodes = draw(st.integers(1, 4))
    cores = [(node, draw(st.integers(1, 2))) for node in range(nodes) for _ in range(draw(st.integers(1, 8)))]
    numbers = draw(st.permutations(range(sum(threads for _, threads in cores))))
    cpus, start = [], 0
    for node, threads in cores:
        group = sorted(numbers[start : start + threads])
        start += threads
        cpus += [{"cpu": cpu, "socket": node, "node": node, "siblings": group} for cpu in group]
    memory = st.one_of(st.none(), st.integers(0, 400 * GIB))
    found = [{"node": node, "cpus": [], "mem_total": draw(memory)} for node in range(nodes)]
    return HostState.model_validate({**FRESH, "cpus": sorted(cpus, key=lambda c: c["cpu"]), "nodes": found})
