"""The experts' memory: as much as a shard on each node, in huge pages where the configuration wants them."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.judge.placement.wanted import Wanted
from ktfleet.measure.placement_record import Memory, Process, Record
from ktfleet.verdict import Verdict

TOLERANCE = 0.02
"""Of a shard that may be missing on its node."""
HUGE = 0.9
"""Of the experts' memory that has to be in huge pages: the rest is the ends of matrices, and the server's own."""

_WHY = "a worker that reads the other node's memory waits for the link between the sockets"
_DO = "restart the server; neither numactl nor a NUMA policy of its unit may be around it, and numa_balancing is 0"


def judge(plan: Wanted, record: Record) -> Iterator[Verdict]:
    """Of the process that has the workers. What numa_maps tells of a node is all of its anonymous memory: a shard or
    more is right, less is not, wherever the rest went."""
    holders = [process for process in record.processes if process.workers]
    unread = next((process.memory_why or "nothing was told" for process in holders if process.memory is None), None)
    if not holders or unread:
        why = unread or "no process has a worker"
        for key in (*(f"experts of node {node}" for node in plan.workers), "experts' huge pages"):
            yield Verdict(key, "inconclusive", "nothing", "the memory of the workers' process", why)
        return
    memory = _sum(holders)
    for node in plan.workers:
        yield _node(plan, memory, node)
    yield _pages(plan, memory)


def _sum(holders: list[Process]) -> Memory:
    found = [process.memory for process in holders if process.memory is not None]
    nodes = sorted({node for memory in found for node in memory.nodes})
    return Memory(
        nodes={node: sum(memory.nodes.get(node, 0) for memory in found) for node in nodes},
        huge=sum(memory.huge for memory in found),
        hugetlb=sum(memory.hugetlb for memory in found),
        swap=sum(memory.swap for memory in found),
    )


def _node(plan: Wanted, memory: Memory, node: int) -> Verdict:
    key, least = f"experts of node {node}", round(plan.shard_bytes * (1 - TOLERANCE))
    wanted = f"at least {_gib(least)} ({1 - TOLERANCE:.0%} of its shard)"
    here = memory.nodes.get(node, 0)
    elsewhere = ", ".join(f"node {other} {_gib(size)}" for other, size in memory.nodes.items() if other != node)
    swapped = f", {_gib(memory.swap)} swapped out" if memory.swap else ""
    seen = f"{_gib(here)}" + (f" ({elsewhere}{swapped})" if elsewhere or swapped else "")
    if here >= least:
        return Verdict(key, "pass", seen, wanted, _WHY)
    return Verdict(key, "fail", seen, wanted, _WHY, _DO)


def _pages(plan: Wanted, memory: Memory) -> Verdict:
    key = "experts' huge pages"
    if plan.policy == "off":
        return Verdict(key, "skipped", "small pages", "nothing", "the configuration wants no huge pages")
    shards = plan.shard_bytes * len(plan.workers)
    seen, what = (memory.huge, "transparent") if plan.policy == "thp" else (memory.hugetlb, "reserved")
    wanted, told = f"at least {HUGE:.0%} of {_gib(shards)} in {what} ones", f"{_gib(seen)}, {seen / shards:.0%}"
    why = "with small pages more of every read goes to the page tables"
    if seen >= HUGE * shards:
        return Verdict(key, "pass", told, wanted, why)
    do = "see the drift check (transparent_hugepage, the server's GLIBC_TUNABLES, the pool), then restart the server"
    return Verdict(key, "fail", told, wanted, why, do)


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB" if size >= 1024**3 / 10 else f"{size / 1024**2:.1f} MiB"
