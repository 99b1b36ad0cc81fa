"""How each guard rail is seen to be crossed; the table with the reasons is guard_rails.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import cores, memory, topology
from ktfleet.problem import Problem
from ktfleet.recipes import Recipe

FEWEST_BITS = 4
"""Bits a weight below which an expert is not taken for granted."""

MOST_DEFERRED = 4
"""Deferred experts a token up to which upstream saw no loss of accuracy."""


@dataclass(frozen=True)
class Subject:
    """What a guard rail looks at."""

    state: HostState
    config: Workstation
    recipe: Recipe
    need: memory.Memory

    @property
    def workers(self) -> int | None:
        """Worker threads that are asked for."""
        return self.config.cpuinfer or self.recipe.offload.cpuinfer


def too_many_workers(subject: Subject) -> Iterable[Problem]:
    """More than one a core."""
    return cores.too_many(subject.state, subject.workers)


def every_core(subject: Subject) -> Iterable[Problem]:
    """One on every core, with no hyperthread beside it."""
    return cores.without_a_spare(subject.state, subject.workers)


def pools(subject: Subject) -> Iterator[Problem]:
    """Of different sizes, or not one a node."""
    yield from cores.uneven(subject.state, subject.workers)
    nodes, asked = len(subject.state.nodes), subject.recipe.offload.pools
    if nodes and asked not in (None, nodes) and topology.placed(subject.state):
        yield Problem("pools are not the NUMA nodes", str(asked), str(nodes), "leave offload.pools out")


def numa_nodes(subject: Subject) -> Iterator[Problem]:
    """Anything but each pool's own number."""
    nodes = subject.recipe.offload.numa_nodes
    if nodes is not None and nodes != tuple(range(len(subject.state.nodes) or len(nodes))):
        wanted = ", ".join(map(str, range(len(subject.state.nodes) or len(nodes))))
        seen = ", ".join(map(str, nodes)) or "none"
        yield Problem("the pools are not on their own nodes", seen, wanted, "leave offload.numa_nodes out")


def numa_policy(subject: Subject) -> Iterator[Problem]:
    """sglang's own way to start under numactl."""
    if subject.recipe.flags.get("numa-node") is not None:
        seen = "flags.numa-node, which starts the server under numactl --membind"
        yield Problem("a NUMA policy over the whole server", seen, "none", "remove flags.numa-node")


def gpu_experts(subject: Subject) -> Iterator[Problem]:
    """Beside AMXINT4."""
    offload = subject.recipe.offload
    if subject.recipe.method == "AMXINT4" and offload.gpu_experts:
        seen = f"{offload.gpu_experts} of each layer"
        yield Problem("experts on the GPU beside AMXINT4", seen, "none", "set offload.gpu_experts = 0")


def speculation(subject: Subject) -> Iterator[Problem]:
    """As long as one expert is computed on the CPUs."""
    recipe = subject.recipe
    if recipe.speculation and recipe.offload.gpu_experts < recipe.experts.count:
        do = "choose a recipe without [speculation]"
        yield Problem("speculation with experts on the CPUs", recipe.speculation.algorithm, "none", do)


def expert_bits(subject: Subject) -> Iterator[Problem]:
    """Scales included."""
    bits = subject.recipe.experts.bits
    if bits < FEWEST_BITS:
        wanted = f"at least {FEWEST_BITS}"
        yield Problem("the experts have few bits", f"{bits:.1f} a weight", wanted, "choose a recipe with more")


def deferred(subject: Subject) -> Iterator[Problem]:
    """Beyond what upstream found harmless."""
    deferred = subject.recipe.offload.deferred
    if deferred > MOST_DEFERRED:
        do = f"set offload.deferred = {MOST_DEFERRED}"
        yield Problem("many experts are deferred", f"{deferred} a token", f"at most {MOST_DEFERRED}", do)


def hugepages(subject: Subject) -> Iterable[Problem]:
    """A pool that leaves too little."""
    return memory.starved(subject.state, subject.need) if topology.placed(subject.state) else ()


def clamp(subject: Subject) -> Iterator[Problem]:
    """Off, with a method that drops the model's own limit."""
    if subject.recipe.clamps and not subject.recipe.offload.clamp:
        seen = f"{subject.recipe.method}, which drops the limit of {subject.recipe.experts.swiglu_limit:g}"
        yield Problem("the model's SwiGLU clamp is off", seen, "the clamp put back", "set offload.clamp = true")


def gpu_prefill(subject: Subject) -> Iterator[Problem]:
    """Beside AMXINT4."""
    threshold = subject.recipe.offload.gpu_prefill_threshold
    if subject.recipe.method == "AMXINT4" and threshold is not None:
        do = "leave offload.gpu_prefill_threshold out"
        yield Problem("prompts are computed on the GPU beside AMXINT4", f"from {threshold} tokens", "on the CPUs", do)


def variant(subject: Subject) -> Iterator[Problem]:
    """Instead of the detection."""
    value = subject.recipe.environment.get("KT_KERNEL_CPU_VARIANT")
    if value is not None:
        do = "remove environment.KT_KERNEL_CPU_VARIANT"
        yield Problem("kt-kernel's choice of instructions is overruled", f"'{value}'", "its own choice", do)


def top_k(subject: Subject) -> Iterator[Problem]:
    """By way of the model's configuration."""
    if "num_experts_per_tok" in str(subject.recipe.flags.get("json-model-override-args", "")):
        seen = "num_experts_per_tok in flags.json-model-override-args"
        yield Problem("the router's width is overruled", seen, "offload.top_k", "remove it and set offload.top_k")
