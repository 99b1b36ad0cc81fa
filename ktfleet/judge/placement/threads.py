"""The server's threads: each worker alone on a core of its node, and nobody else where a worker is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ktfleet.judge.placement.wanted import Wanted
from ktfleet.measure.placement_record import Record, Thread
from ktfleet.plan.cpu_lists import parse, ranges
from ktfleet.verdict import Result, Verdict

SHOWN = 12
"""Threads of one kind of fault that have a verdict each; the rest is counted."""

_WORKERS = "a worker without a core of its own spins on somebody else's: 28 tok/s became 2.7 (ktransformers #2088)"
_OTHERS = "a thread on a worker's core stops the whole pool: 41.1 GB/s became 9.5 (16 CPUs, one thread, December 2026)"
_RENDER = "start the server with the plan's own command line (`ktfleet launch`); run deploy.py again"
_AFFINITY = "CPUAffinity= of the server's unit has to be the plan's other CPUs: run deploy.py again, restart the server"


def workers(plan: Wanted, record: Record) -> Iterator[Verdict]:
    """Their number on each node, then each one that is not where it should be."""
    seen = [thread for process in record.processes for thread in process.workers]
    for node in sorted({*plan.workers, *(thread.pool for thread in seen)}):
        pool = [thread for thread in seen if thread.pool == node]
        count, planned = len(pool), plan.workers.get(node, ())
        result: Result = "pass" if count == len(planned) else "fail"
        on = ranges(cpu for thread in pool for cpu in parse(thread.allowed)) or "no CPU"
        told = f"{count} on {on}" if count else "none"
        wanted = f"{len(planned)}, one CPU of each core: {ranges(planned) or 'none'}"
        yield Verdict(f"workers of node {node}", result, told, wanted, _WORKERS, _RENDER)
    yield from _shown("workers", list(_misplaced(plan, seen)))


def _misplaced(plan: Wanted, seen: list[Thread]) -> Iterator[Verdict]:
    owners: dict[tuple[int, ...], Thread] = {}
    for thread in seen:
        allowed = parse(thread.allowed)
        key, wanted = f"worker {thread.name}", f"one CPU of node {thread.pool}, no other worker on its core"
        if len(allowed) != 1:
            told = f"may run on {thread.allowed}, ran last on {thread.last_cpu}"
            yield Verdict(key, "fail", told, wanted, _WORKERS, _RENDER)
            continue
        (cpu,) = allowed
        core = plan.cores.get(cpu)
        if core is None:
            yield Verdict(key, "inconclusive", f"CPU {cpu}", wanted, f"CPU {cpu}'s core and node are not known")
        elif plan.nodes[cpu] != thread.pool:
            yield Verdict(key, "fail", f"CPU {cpu} of node {plan.nodes[cpu]}", wanted, _WORKERS, _RENDER)
        elif core in owners:
            told = f"CPU {cpu}, on the core of {owners[core].name}"
            yield Verdict(key, "fail", told, wanted, _WORKERS, _RENDER)
        else:
            owners[core] = thread


def others(plan: Wanted, record: Record) -> Iterator[Verdict]:
    """No other thread of the server may run where a worker is."""
    key = "other threads"
    taken = worker_cpus(record)
    if not taken:
        yield Verdict(key, "inconclusive", "no worker", "none on a worker's CPU", "no worker has a CPU of its own")
        return
    wanted = f"none of the workers' CPUs {ranges(taken)}"
    groups: dict[tuple[str, str, str], list[Thread]] = defaultdict(list)
    count = 0
    for process in record.processes:
        for thread in process.threads:
            if not thread.worker:
                count += 1
                if taken.intersection(parse(thread.allowed)) or not parse(thread.allowed):
                    groups[process.name, thread.name, thread.allowed].append(thread)
    if not groups:
        yield Verdict(key, "pass", f"{count} on other CPUs", wanted, _OTHERS)
    faults = [
        Verdict(
            f"thread {name}" + (f" of {process}" if process != name else ""),
            "fail",
            f"may run on {allowed} ({_numbers(threads)})",
            wanted,
            _OTHERS,
            _AFFINITY,
        )
        for (process, name, allowed), threads in groups.items()
    ]
    yield from _shown(key, faults)


def worker_cpus(record: Record) -> set[int]:
    """CPUs on which one worker is bound. One that may run anywhere has none."""
    bound = (parse(thread.allowed) for process in record.processes for thread in process.workers)
    return {allowed[0] for allowed in bound if len(allowed) == 1}


def _numbers(threads: list[Thread]) -> str:
    first = threads[0]
    more = f" and {len(threads) - 1} more" if len(threads) > 1 else ""
    return f"thread {first.tid}{more}, last on CPU {first.last_cpu}"


def _shown(key: str, faults: list[Verdict]) -> Iterator[Verdict]:
    yield from faults[:SHOWN]
    if len(faults) > SHOWN:
        rest = faults[SHOWN]
        told = f"{len(faults) - SHOWN} more, as {rest.key}: {rest.seen}"
        yield Verdict(f"{key}, the rest", "fail", told, rest.wanted, rest.why, rest.do)
