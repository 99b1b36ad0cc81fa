"""Verdicts on memory bandwidth: a measurement and what the channels could do in, one verdict a thing out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ktfleet.measure.bandwidth_record import Record, Run
from ktfleet.verdict import Verdict

KEY = "bandwidth"

SHARE = 0.7
"""Of the bandwidth in theory that reading has to reach. An estimate: a Skylake-SP's published read figures (Intel MLC)
are 80 to 90 % of theory; a lost channel costs 30 to 40 %, and no such host was measured here."""
TWINS = 0.85
"""The slower node's part of the faster one: two sockets are alike, so a channel that nobody lists shows here."""
STEADY = 0.8
"""The median's part of the best: below, something else used the memory."""
HUGE = 0.9

_WHY = "every token waits for its experts to be read"
_RESEAT = "reseat the DIMMs of that socket, compare with the worksheet; see edac and the firmware's log for a dead one"


def judge(theory: Mapping[int, float], record: Record | None) -> tuple[Verdict, ...]:
    """Everything that was measured. `theory`: node -> GB/s of its channels, without a node: not known."""
    if record is None:
        return (Verdict(KEY, "inconclusive", "nothing", "the measurement's answer", "it could not be run"),)
    if record.why or not record.runs:
        return (Verdict(KEY, "inconclusive", "nothing", "a measurement", record.why or "nothing ran"),)
    broken = next((run for run in record.runs if run.error or run.wrong or not run.read), None)
    if broken:
        why = broken.error or ("memory does not hold what was written" if broken.wrong else "a run told nothing")
        if broken.wrong:
            return (Verdict(KEY, "fail", "wrong sums", "what was written", why, "test the memory; do not serve"),)
        return (Verdict(KEY, "inconclusive", "nothing", "a measurement", why),)
    local = {run.cpu_node: run for run in record.runs if run.local}
    return (
        *(_node(run, theory) for run in local.values()),
        *_alike(local),
        *(_remote(run) for run in record.runs if run.kind == "matrix" and not run.local),
        *_together(record, local),
        *(_threads(record, run) for run in local.values()),
        _pages(record),
    )


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    why = "the measurement was begun and has not ended"
    return (Verdict(KEY, "inconclusive", "nothing", "the measurement's answer", why),)


def figure(node: int) -> str:
    """The name under which a node's read bandwidth is kept in the results."""
    return f"read GB/s of node {node}"


def figures(record: Record) -> dict[str, float]:
    """What is worth keeping: each node's best read bandwidth with all of its CPUs, when nothing was wrong."""
    if record.why or any(run.error or run.wrong for run in record.runs):
        return {}
    return {
        figure(run.cpu_node): run.read.best
        for run in record.runs
        if run.local and run.read and run.cpu_node is not None
    }


def _best(run: Run) -> float:
    return run.read.best if run.read else 0.0


def _numbers(run: Run) -> str:
    triad = f", triad {run.triad.best:.1f}" if run.triad else ""
    median = run.read.median if run.read else 0.0
    return f"{_best(run):.1f} GB/s with {run.threads} threads (median {median:.1f}{triad})"


def _node(run: Run, theory: Mapping[int, float]) -> Verdict:
    key, most = f"{KEY} of node {run.cpu_node}", theory.get(-1 if run.cpu_node is None else run.cpu_node)
    if run.read and run.read.median < STEADY * run.read.best:
        why = "best and median differ too much: something else uses the memory"
        return Verdict(key, "inconclusive", _numbers(run), f"a median of {STEADY:.0%} of the best", why)
    if most is None:
        why = "channels and speed of the DIMMs are not known, so there is nothing to compare with"
        return Verdict(key, "inconclusive", _numbers(run), f"{SHARE:.0%} of theory", why)
    wanted = f">= {SHARE * most:.1f} GB/s ({SHARE:.0%} of {most:.1f} in theory)"
    if _best(run) < SHARE * most:
        return Verdict(key, "fail", _numbers(run), wanted, _WHY, _RESEAT)
    if _best(run) > most:
        why = "faster than its channels: the caches answered, or the DIMMs are told wrongly"
        return Verdict(key, "inconclusive", _numbers(run), f"at most {most:.1f} GB/s", why)
    return Verdict(key, "pass", f"{_numbers(run)}, {_best(run) / most:.0%} of theory", wanted, _WHY)


def _alike(local: Mapping[int | None, Run]) -> Iterator[Verdict]:
    if len(local) < 2:
        return
    slow, fast = min(local.values(), key=_best), max(local.values(), key=_best)
    seen = f"node {slow.cpu_node} reads {_best(slow):.1f} GB/s, node {fast.cpu_node} {_best(fast):.1f}"
    wanted, why = f"{TWINS:.0%} of each other", "the slowest node decides: all experts of a token are waited for"
    good = _best(slow) >= TWINS * _best(fast)
    yield Verdict(f"{KEY} of the nodes", "pass" if good else "fail", seen, wanted, why, _RESEAT)


def _remote(run: Run) -> Verdict:
    key = f"{KEY} of node {run.cpu_node} at node {run.memory_node}"
    return Verdict(key, "pass", _numbers(run), "anything", "reported, not judged: experts are read locally")


def _together(record: Record, local: Mapping[int | None, Run]) -> Iterator[Verdict]:
    """All nodes at once have what they have alone: else they share something, as interleaved memory does."""
    for run in record.runs:
        if run.kind == "together":
            alone = sum(map(_best, local.values()))
            wanted, why = f">= {TWINS * alone:.1f} GB/s, {TWINS:.0%} of both alone", "each node reads its own memory"
            do = "BIOS: node interleaving off; see that the workers' memory is local"
            good = _best(run) >= TWINS * alone
            yield Verdict(f"{KEY} together", "pass" if good else "fail", _numbers(run), wanted, why, do)


def _threads(record: Record, run: Run) -> Verdict:
    """How many threads a node needs: the fewest that have 95 % of the most."""
    steps = [one for one in record.runs if one.kind == "sweep" and one.cpu_node == run.cpu_node] + [run]
    most = max(map(_best, steps))
    enough = min((one for one in steps if _best(one) >= 0.95 * most), key=lambda one: one.threads)
    shown = ", ".join(f"{one.threads}: {_best(one):.1f}" for one in sorted(steps, key=lambda one: one.threads))
    key, why = f"{KEY} threads of node {run.cpu_node}", "reported, not judged"
    return Verdict(key, "pass", f"{enough.threads} have 95 % of the most ({shown} GB/s)", "anything", why)


def _pages(record: Record) -> Verdict:
    key, policy = f"{KEY} huge pages", record.order.get("hugepages")
    if policy == "off":
        return Verdict(key, "skipped", "small pages", "nothing", "the configuration wants no huge pages")
    share = min((run.huge_bytes / run.bytes if run.bytes else 0.0) for run in record.runs)
    wanted, why = (
        f"{HUGE:.0%} of the memory",
        "the weights are to lie in huge pages, so this was to be measured in them",
    )
    if share < HUGE:
        return Verdict(
            key, "fail", f"{share:.0%}", wanted, why, "see the drift check: transparent huge pages, or the pool"
        )
    return Verdict(key, "pass", f"{share:.0%}", wanted, why)
