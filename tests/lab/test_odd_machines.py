"""Machines that are built otherwise: refused before anything is touched, or planned as they are."""

from __future__ import annotations

import pytest

from tests.lab.conftest import Boot
from tests.lab.deploying import NO_REBOOT, Run, files, pyinfra
from tests.lab.machine import Machine
from tests.lab.topology import Topology

pytestmark = [pytest.mark.lab, pytest.mark.long]


def refused(machine: Machine) -> Run:
    """A deploy that must touch nothing."""
    before = files(machine)
    run = pyinfra(machine, "deploy.py")
    assert run.code == 1, run.said
    assert files(machine) == before
    assert "Nothing was touched." in run.said
    assert "Traceback" not in run.said
    return run


def test_sub_numa_clustering_is_refused_and_nothing_is_touched(boot: Boot) -> None:
    machine = boot(Topology(nodes_per_socket=2, node_mib=1024))
    assert machine.run("cat /sys/devices/system/node/online").stdout == "0-3\n"
    run = refused(machine)
    assert (
        "lab  refused: sub-NUMA clustering is on: seen 4 nodes on 2 sockets, wanted 2; "
        "BIOS > Processor (or Chipset) > Sub NUMA Clustering (SNC): disable" in run.said
    )


def test_a_node_without_memory_is_refused_and_nothing_is_touched(boot: Boot) -> None:
    machine = boot(Topology(node_mib=(4096, 0)))
    run = refused(machine)
    assert "lab  refused: node 1 has no memory: seen 0 GiB, wanted half of the machine's memory; " in run.said


def test_without_hyperthreads_a_core_a_node_is_kept_back(boot: Boot) -> None:
    machine = boot(Topology(threads=1))
    first = pyinfra(machine, "deploy.py", *NO_REBOOT)
    assert first.proven, first.said
    assert "note: hyperthreads are off: 1 core a node is kept back for the other threads" in first.said
    # CPUs 0 and 2 carry the workers.
    assert machine.run("cat /proc/irq/default_smp_affinity").stdout.strip() == "a"
    before = files(machine)
    second = pyinfra(machine, "deploy.py", *NO_REBOOT)
    assert second.proven, second.said
    assert (second.changed, files(machine)) == (0, before)
