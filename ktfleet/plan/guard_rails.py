"""THE table of guard rails: settings that are known to lose, each with its reason, effect and source.

What crashes, answers nonsense or collapses is refused. What is only slower or less exact needs a reason, in the
recipe's or the host's `accept`, and then stands in every plan and report. docs/guard-rails.md is derived from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ktfleet.plan import crossings
from ktfleet.plan.crossings import FEWEST_BITS, MOST_DEFERRED, Subject
from ktfleet.problem import Problem


@dataclass(frozen=True)
class Rail:
    """One row. setting: its name in `accept`. what: what is done that loses, in words. crossed: a problem for each time
    that it is. refused: whether no reason is taken. effect: what was measured, on what.
    """

    setting: str
    what: str
    crossed: Callable[[Subject], Iterable[Problem]]
    refused: bool
    why: str
    effect: str
    source: str


@dataclass(frozen=True)
class Accepted:
    """A guard rail that is crossed knowingly."""

    rail: Rail
    seen: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rail.what}: {self.seen}; accepted: {self.reason}; known to cost: {self.rail.effect}"

    def to_json(self) -> dict[str, str]:
        """For `ktfleet plan --json`."""
        rail = self.rail
        told = {"setting": rail.setting, "seen": self.seen, "reason": self.reason}
        return {**told, "why": rail.why, "effect": rail.effect, "source": rail.source}


def problems(subject: Subject) -> tuple[Problem, ...]:
    """Everything that is not accepted, and what is accepted but cannot be."""
    accepted = _reasons(subject)
    found = [
        _with_remedy(rail, problem)
        for rail in TABLE
        if rail.refused or rail.setting not in accepted
        for problem in rail.crossed(subject)
    ]
    return (*found, *_wrong_names(subject))


def accepted(subject: Subject) -> tuple[Accepted, ...]:
    """What is crossed with a reason."""
    reasons = _reasons(subject)
    rails = [rail for rail in TABLE if not rail.refused and rail.setting in reasons]
    return tuple(
        Accepted(rail, problem.seen, reasons[rail.setting]) for rail in rails for problem in rail.crossed(subject)
    )


def _reasons(subject: Subject) -> dict[str, str]:
    return {**subject.recipe.accept, **subject.config.accept}


def _with_remedy(rail: Rail, problem: Problem) -> Problem:
    if rail.refused:
        return problem
    do = f'{problem.do}, or accept it: accept = {{{rail.setting} = "why"}}'
    return Problem(problem.what, problem.seen, f"{problem.wanted} ({rail.effect})", do)


def _wrong_names(subject: Subject) -> Iterator[Problem]:
    takes = [rail.setting for rail in TABLE if not rail.refused]
    refused = [rail.setting for rail in TABLE if rail.refused]
    for name in _reasons(subject):
        if name in refused:
            yield Problem(f"accept.{name}", "a guard rail that is never crossed", "none", f"remove accept.{name}")
        elif name not in takes:
            close = difflib.get_close_matches(name, takes, n=1)
            do = f"did you mean '{close[0]}'?" if close else "remove it"
            yield Problem(f"accept.{name}", "an unknown guard rail", f"one of {', '.join(takes)}", do)


_REPORT = "ktransformers #2088: DeepSeek-V4-Flash on 2x Xeon Gold 6138 and an RTX 5090, 2026-07"
_OURS = "one AMXINT4 layer of the real shape, kt_kernel 0.7.2, 16 CPUs without hyperthreads, 2026-12-01"

TABLE: tuple[Rail, ...] = (
    Rail(
        setting="cpuinfer",
        what="more worker threads than physical cores",
        crossed=crossings.too_many_workers,
        refused=True,
        why="A worker without a core of its own stays unpinned and spins beside those that have one.",
        effect="28 -> 2.7 tok/s with one worker a hyperthread; 32 workers on 16 cores: 17x slower than 15",
        source=f"{_REPORT}; {_OURS}",
    ),
    Rail(
        setting="spare_core",
        what="as many workers as cores where no hyperthread is left for the other threads",
        crossed=crossings.every_core,
        refused=True,
        why="The server's other threads, one of which spins during each layer, then share a core with a worker, and "
        "all workers wait for that one.",
        effect="16 workers on 16 cores moved 9.5 GB/s of weights, 15 moved 41.1: 4.3x",
        source=_OURS,
    ),
    Rail(
        setting="pools",
        what="pools of different sizes, or another number of pools than NUMA nodes",
        crossed=crossings.pools,
        refused=True,
        why="Each pool computes its share of every expert: all wait for the one with fewer workers, and a pool that "
        "is not a node reads the other node's memory.",
        effect="42 instead of 41 threads fell to 1 tok/s",
        source="ktransformers #685; read in kt_kernel 0.7.2",
    ),
    Rail(
        setting="numa_nodes",
        what="pools on other nodes than their own numbers",
        crossed=crossings.numa_nodes,
        refused=True,
        why="kt-kernel binds a pool's threads to the mapped node but its memory to the node of the pool's number: "
        "every weight is then read from the other socket.",
        effect="not measured: nobody here has two sockets",
        source="read in kt_kernel 0.7.2 (WorkerPoolConfig.subpool_numa_map)",
    ),
    Rail(
        setting="numa_policy",
        what="`numactl`'s interleave or membind around the server",
        crossed=crossings.numa_policy,
        refused=True,
        why="kt-kernel places its weights itself, so it does not move them; everything else of the server, its pinned "
        "buffers too, lands on a far or a full node. Nothing that ktfleet writes has such a policy.",
        effect="interleave with a GPU: 2.32 -> 0.22 tok/s",
        source="a public report, 2026; read in kt_kernel 0.7.2 and sglang-kt 0.7.2 (utils/numa_utils.py)",
    ),
    Rail(
        setting="gpu_experts",
        what="routed experts on the GPU beside AMXINT4",
        crossed=crossings.gpu_experts,
        refused=False,
        why="The few that fit take little off the CPUs: at most 13 % of the traffic, if it is uniform.",
        effect="28 -> 27.5 tok/s",
        source=_REPORT,
    ),
    Rail(
        setting="speculation",
        what="EAGLE where the CPUs' memory is the limit",
        crossed=crossings.speculation,
        refused=False,
        why="Drafted tokens route to different experts: a step that verifies them reads more weights, and that is "
        "what the machine has too little of. On eight GPUs the same gave 26.5 -> 32.7.",
        effect="28 -> 27.2 tok/s",
        source=_REPORT,
    ),
    Rail(
        setting="expert_bits",
        what=f"experts with fewer than {FEWEST_BITS} bits a weight",
        crossed=crossings.expert_bits,
        refused=False,
        why="Reading less is faster, but already int4 with one scale a row is far from the checkpoint: whether less "
        "still answers well needs somebody's judgement.",
        effect="not measured below 4 bits; at 4 bits a relative L1 error of one layer of 0.27",
        source=f"{_REPORT}, among what did not help; kt_kernel 0.7.2 on one CPU, December 2026",
    ),
    Rail(
        setting="deferred",
        what=f"more than {MOST_DEFERRED} deferred experts a token",
        crossed=crossings.deferred,
        refused=False,
        why="A deferred expert's result is added one layer late. Of the highest-weight experts that is visible.",
        effect="5 to 7: visibly less accurate; the speed was not measured here",
        source="upstream's guide to expert deferral",
    ),
    Rail(
        setting="hugepages",
        what="a reserve of huge pages that starves the weights",
        crossed=crossings.hugepages,
        refused=True,
        why="A pool is taken from its node's memory before anything else is, and each node's weights are bound to it: "
        "the out-of-memory killer ends the start.",
        effect="not measured; follows from the sizes",
        source="Linux Documentation/admin-guide/mm/hugetlbpage.rst; read in kt_kernel 0.7.2",
    ),
    Rail(
        setting="clamp",
        what="AMXINT4 without the model's SwiGLU clamp",
        crossed=crossings.clamp,
        refused=False,
        why="The model was trained with a limit on its activation; sglang-kt drops it for this method without a word.",
        effect="relative L2 error against the clamped reference 0.991 without, 0.015 with the clamp (inputs beyond it)",
        source="sglang-kt and kt_kernel 0.7.2 on a CPU with int4-exact weights, December 2026",
    ),
    Rail(
        setting="gpu_prefill",
        what="a GPU prefill threshold beside AMXINT4",
        crossed=crossings.gpu_prefill,
        refused=False,
        why="Upstream gives a threshold with native methods only; nobody has shown that the GPU can compute layers "
        "that were converted for AMXINT4.",
        effect="not measured, never seen to work",
        source="upstream's guides; not tried here",
    ),
    Rail(
        setting="cpu_variant",
        what="`KT_KERNEL_CPU_VARIANT`",
        crossed=crossings.variant,
        refused=True,
        why="It skips the detection of the CPU: a variant that the CPU lacks ends in an illegal instruction, a lower "
        "one is slow without a word.",
        effect="SIGILL; avx2 instead of AVX-512: 3 instead of 14 tok/s",
        source="kt_kernel 0.7.2 (_cpu_detect.py); ktransformers #1713, #1908",
    ),
    Rail(
        setting="top_k",
        what="`num_experts_per_tok` in `--json-model-override-args`",
        crossed=crossings.top_k,
        refused=True,
        why="It reaches the configuration, and then the load fails: the hash layers 0-2 hold a table of six columns.",
        effect="the server does not start",
        source="read in sglang-kt 0.7.2; offload.top_k culls where it can be done",
    ),
)
