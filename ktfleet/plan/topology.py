"""Whether sockets, nodes and siblings are as they must be: one NUMA node a socket, and lists that agree."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.problem import Problem

_NUMA_OFF = "BIOS > Memory: disable node interleaving (and remove numa=off from the kernel command line)"
_SNC = "BIOS > Processor (or Chipset) > Sub NUMA Clustering (SNC): disable"


def problems(state: HostState, config: Workstation) -> tuple[Problem, ...]:
    """What is wrong with the topology. Of the nodes' problems only the first kind is told: it explains the others."""
    kinds = (_broken_lists, _nodes_without_cpus, _node_count, _node_numbers, _split_sockets)
    found = (tuple(kind(state, config)) for kind in kinds)
    return (*_sockets(state, config), *next((kind for kind in found if kind), ()))


def placed(state: HostState) -> bool:
    """Whether every CPU's place was read: what is missing is unknown and must not look like a wrong count."""
    return all(None not in (cpu.socket, cpu.node, cpu.siblings) for cpu in state.cpus)


def _sockets(state: HostState, config: Workstation) -> Iterator[Problem]:
    seen, wanted = len(_seen_sockets(state)), config.hardware.sockets
    if seen and seen != wanted:
        do = "reseat or replace the missing CPU" if seen < wanted else "correct the inventory"
        yield Problem("wrong number of CPU sockets", str(seen), str(wanted), f"{do} (hardware.sockets says {wanted})")


def _broken_lists(state: HostState, _: Workstation) -> Iterator[Problem]:
    """A sibling list that its own members contradict could put two workers on one core."""
    siblings = {cpu.cpu: set(cpu.siblings) for cpu in state.cpus if cpu.siblings is not None}
    if len({cpu.cpu for cpu in state.cpus}) != len(state.cpus):
        yield Problem("the CPU list is broken", "a CPU twice", "each once", "probe the host again")
    node_of = {cpu.cpu: cpu.node for cpu in state.cpus}
    socket_of = {cpu.cpu: cpu.socket for cpu in state.cpus}
    for cpu, listed in sorted(siblings.items()):
        here = listed & set(siblings)
        if any(len({where[other] for other in here | {cpu}} - {None}) > 1 for where in (node_of, socket_of)):
            seen = f"siblings {sorted(here)} of CPU {cpu} in several sockets or nodes"
            yield Problem("the sibling lists disagree", seen, "a core in one place", "update the BIOS")
            return
        others = [other for other in sorted(here) if siblings[other] & set(siblings) != here]
        if others or cpu not in listed:
            seen = f"CPU {cpu} with {sorted(listed)}, CPU {others[0] if others else cpu} otherwise"
            yield Problem("the sibling lists disagree", seen, "one list for all of a core", "update the BIOS")
            return


def _nodes_without_cpus(state: HostState, config: Workstation) -> Iterator[Problem]:
    with_cpus = {cpu.node for cpu in state.cpus}
    for node in state.nodes:
        if with_cpus and None not in with_cpus and node.node not in with_cpus:
            do = "see that its socket is populated and online; a node of memory alone has to be switched off"
            yield Problem(f"NUMA node {node.node} has no CPUs", "0", f"{config.hardware.cores_per_socket} cores", do)


def _node_count(state: HostState, _: Workstation) -> Iterator[Problem]:
    nodes, sockets = len(state.nodes), len(_seen_sockets(state))
    if not nodes or not sockets or not placed(state):
        return
    if nodes > sockets:
        what = "sub-NUMA clustering is on" if nodes % sockets == 0 else "more NUMA nodes than sockets"
        yield Problem(what, f"{nodes} nodes on {_plural(sockets, 'socket')}", str(sockets), _SNC)
    elif nodes < sockets:
        yield Problem(
            "NUMA is off", f"{_plural(nodes, 'node')} on {_plural(sockets, 'socket')}", str(sockets), _NUMA_OFF
        )


def _node_numbers(state: HostState, _: Workstation) -> Iterator[Problem]:
    numbers = [node.node for node in state.nodes]
    if numbers != list(range(len(numbers))):
        seen, wanted = ", ".join(map(str, numbers)), f"0 to {len(numbers) - 1}"
        yield Problem("NUMA nodes are not numbered from 0", seen, wanted, "check which CPU or memory is off")


def _split_sockets(state: HostState, _: Workstation) -> Iterator[Problem]:
    sockets: dict[int, set[int]] = {}
    for cpu in state.cpus:
        if cpu.node is not None and cpu.socket is not None:
            sockets.setdefault(cpu.node, set()).add(cpu.socket)
    for node, found in sorted(sockets.items()):
        if len(found) > 1:
            seen = f"CPUs of sockets {', '.join(map(str, sorted(found)))}"
            yield Problem(
                f"NUMA node {node} spans sockets", seen, "those of one", "update the BIOS, or disable fake NUMA"
            )


def _seen_sockets(state: HostState) -> set[int]:
    """The sockets; none when some CPU's could not be read."""
    seen = {cpu.socket for cpu in state.cpus}
    return set() if None in seen else {socket for socket in seen if socket is not None}


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
