"""Captured trees of odd hosts, the whole way: probe, plan, what a person reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.probe import collect
from ktfleet.host.state import HostState
from ktfleet.plan.request import request
from tests.trees import CPU_FLAGS, put, write_tree

UNIT = "/sys/fs/cgroup/system.slice/ktfleet-server.service"
CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"


def _nothing(_: Path) -> None:
    """The tree is odd enough as it is written."""


@dataclass(frozen=True)
class Odd:
    """A host: how its tree is written and then spoilt, and what the plan has to say. Empty: it is served."""

    name: str
    tree: dict[str, Any] = field(default_factory=dict)
    spoil: Callable[[Path], object] = _nothing
    refusals: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    cpuinfer: int = 40


def removed(*paths: str) -> Callable[[Path], object]:
    def spoil(tree: Path) -> None:
        for path in paths:
            for found in tree.glob(path):
                shutil.rmtree(found) if found.is_dir() and not found.is_symlink() else found.unlink()

    return spoil


def file(path: str, text: str) -> Callable[[Path], object]:
    return lambda tree: put(tree, path, text)


HOSTS = (
    Odd("the workstation"),
    Odd("siblings side by side", {"numbering": "adjacent"}),
    Odd("even CPUs on node 0", {"numbering": "even_odd"}),
    Odd("hyperthreads off", {"threads": 1}, cpuinfer=38),
    Odd("a lost core", {"lost": {(0, 7)}}, cpuinfer=38),
    Odd("an offline hyperthread", {"offline": {45}}),
    Odd("hyperthreads switched off by Linux", {"offline": set(range(40, 80))}, cpuinfer=38),
    Odd("sub-NUMA clustering", {"nodes_per_socket": 2}, refusals=("sub-NUMA clustering is on: seen 4 nodes on 2 ",)),
    Odd("one socket", {"sockets": 1}, refusals=("wrong number of CPU sockets: seen 1, wanted 2", "node 0 has")),
    Odd("four sockets", {"sockets": 4}, refusals=("wrong number of CPU sockets: seen 4, wanted 2",)),
    Odd("DIMMs on one socket only", {"node_mib": (262144, 0)}, refusals=("node 1 has no memory: seen 0 GiB",)),
    Odd("half of the DIMMs of a socket", {"node_mib": (131072, 98304)}, refusals=("memory is uneven: seen 128.0 GiB",)),
    Odd("64 GiB a node", {"node_mib": (65536, 65536)}, refusals=("node 0 has too little", "node 1 has too little")),
    Odd("no AVX-512", {"flags": CPU_FLAGS.replace("avx512bw ", "")}, refusals=("the CPU cannot run AMXINT4: seen no",)),
    Odd("a smaller CPU", {"cores": 12}, refusals=("wrong number of physical cores on socket 0: seen 12", "wrong")),
    Odd("an old distribution", {"os": ("ubuntu", "20.04")}, refusals=("unsupported distribution: seen ubuntu 20.04",)),
    Odd("Debian testing", {}, file("/usr/lib/os-release", "ID=debian\n"), ("unsupported distribution: seen debian",)),
    Odd("half of the nodes in the capture", {}, removed(f"{NODE}/node1"), unknown=("the node of 40 CPUs cannot",),
        cpuinfer=20),
    Odd("no topology in the capture", {}, removed(f"{CPU}/cpu*/topology"), cpuinfer=0,
        unknown=("the socket of 80 CPUs cannot", "the siblings of 80 CPUs cannot")),
    Odd("a node without its CPU list", {}, removed(f"{NODE}/node1/cpulist"), unknown=("the node of 40 CPUs cannot",),
        cpuinfer=0),
    Odd("no NUMA in the capture", {}, removed(NODE), unknown=("the NUMA nodes cannot be read", "the node of 80 CPUs"),
        cpuinfer=0),
    Odd("no cpuinfo", {}, removed("proc/cpuinfo"), unknown=("the CPU flags cannot be read: seen no such file",)),
    Odd("garbled siblings", {}, file(f"/{CPU}/cpu3/topology/thread_siblings_list", "3,,43\n")),
    Odd("siblings that disagree", {}, file(f"/{CPU}/cpu3/topology/thread_siblings_list", "3\n"),
        refusals=("the sibling lists disagree: seen CPU ", "wrong number of physical cores on socket 0: seen 21")),
    Odd("a crashed capture", {}, removed("proc", "sys", "etc", "usr"), cpuinfer=0,
        unknown=("the distribution", "the CPUs", "the NUMA nodes", "the CPU flags", "the boot id", "the kernel",
                 "the PCI devices", *["the file system of"] * 6, *["the accounts in"] * 2)),
    Odd("a read-only root", {"files": {"/proc/self/mounts": "/dev/sda1 / ext4 ro,relatime 0 0\n"}},
        refusals=("the file system of /, /boot, /etc, /opt, /usr/local, /var is read-only: seen /dev/sda1 mounted",)),
    Odd("an interrupted dpkg, which a deploy finishes", {"files": {"/var/lib/dpkg/updates/0003": ""}}),
    Odd("no card", {}, removed("sys/bus/pci/devices/0000:3b:00.0"), refusals=("the graphics card is missing",)),
    Odd("a limited server", {"files": {f"{UNIT}/cgroup.procs": "77\n", f"{UNIT}/memory.max": "68719476736\n"}},
        refusals=("a cgroup limits the server's memory: seen memory.max 64.0 GiB, wanted at least 129.5 GiB",)),
    Odd("no mounts in the capture", {}, removed("proc/self/mounts", "proc/mounts"),
        unknown=("the file system of",) * 6),
    Odd("slots with labels that nobody knows", {}, removed("sys/devices/system/edac")),
)  # fmt: skip


@pytest.mark.parametrize("odd", HOSTS, ids=lambda odd: odd.name)
def test_an_odd_host(odd: Odd, tmp_path: Path) -> None:
    tree = write_tree(tmp_path, **odd.tree)
    odd.spoil(tree)
    state = HostState.model_validate(collect(str(tree), **asdict(request())))
    made = plan.make(state, Workstation(), recipes.load("dsv4-flash-amxint4"))
    told = [str(problem) for problem in made.refusals]
    missing = [str(problem) for problem in made.unknown]
    assert [line.startswith(start) for line, start in zip(told, odd.refusals, strict=True)] == [True] * len(told), told
    assert [line.startswith(start) for line, start in zip(missing, odd.unknown, strict=True)] == [True] * len(missing)
    if not odd.refusals:
        assert made.cores.cpuinfer == odd.cpuinfer
