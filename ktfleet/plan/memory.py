"""Whether the weights fit each node, and the huge pages each node gets.

kt-kernel binds every pool's memory hard to its node (MPOL_BIND), so totals do not matter: each node does.
"""

from __future__ import annotations

from dataclasses import dataclass

from ktfleet.config import Gpu, HugepagePolicy, Hugepages
from ktfleet.host.state import HostState
from ktfleet.problem import Problem
from ktfleet.recipes import GIB, Recipe

GIGANTIC_PAGES = "/sys/devices/system/node/node*/hugepages/hugepages-1048576kB/nr_hugepages"
"""Each node's pool of 1 GiB pages, which nothing here uses."""

HUGEPAGE_BYTES = 2 * 1024**2

POOL_MARGIN = 1.02
"""A default hugetlb pool is this much larger than the shard: malloc rounds each matrix up (an estimate)."""


@dataclass(frozen=True)
class Memory:
    """What each node must hold. Bytes; `hugepages_per_node` counts 2 MiB pages."""

    policy: HugepagePolicy
    hugepages_per_node: int
    shard_bytes: int
    reserve_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Bytes one node must have. Weights beyond the pool land in ordinary memory."""
        return max(self.shard_bytes, self.pool_bytes) + self.reserve_bytes

    @property
    def pool_bytes(self) -> int:
        """Bytes of one node's huge page pool."""
        return self.hugepages_per_node * HUGEPAGE_BYTES

    @property
    def notes(self) -> tuple[str, ...]:
        """A pool that the weights do not fit in works, but only in part."""
        if self.policy != "hugetlb" or self.pool_bytes >= self.shard_bytes:
            return ()
        pool, weights = _gib(self.pool_bytes), _gib(self.shard_bytes)
        return (f"the huge page pool holds {pool} of each node's {weights} of weights: the rest gets ordinary pages",)


def divide(recipe: Recipe, hugepages: Hugepages, pools: int) -> Memory:
    """The memory of each of `pools` nodes (at least one is assumed)."""
    shard = recipe.shard_bytes(max(1, pools))
    return Memory(hugepages.policy, _pool_pages(hugepages, shard), shard, recipe.reserve_bytes)


def too_small(state: HostState, memory: Memory, recipe: Recipe) -> tuple[Problem, ...]:
    """Nodes without enough memory for their weights. Unread nodes are not judged.

    1 GiB pages that somebody reserved are not there for the weights.
    """
    least = memory.shard_bytes + memory.reserve_bytes
    weights, reserve = _gib(memory.shard_bytes), _gib(memory.reserve_bytes)
    wanted = f"{_gib(least)} (weights {weights}, everything else {reserve})"
    do = "add memory to this socket or choose a smaller recipe"
    return tuple(
        Problem(f"node {node} has too little memory for {recipe.name}", _gib(total), wanted, do)
        for node, total in _usable(state).items()
        if total < least
    )


def starved(state: HostState, memory: Memory) -> tuple[Problem, ...]:
    """Nodes whose own huge page pool leaves too little beside it."""
    least = memory.shard_bytes + memory.reserve_bytes
    return tuple(
        Problem(
            f"node {node}'s huge page pool starves everything else",
            f"a pool of {_gib(memory.pool_bytes)} in {_gib(total)}",
            f"{_gib(memory.reserve_bytes)} left beside it",
            f"set hugepages.per_node to at most {(total - memory.reserve_bytes) // HUGEPAGE_BYTES}",
        )
        for node, total in _usable(state).items()
        if least <= total < memory.needed_bytes
    )


def card_too_small(card: Gpu | None, recipe: Recipe) -> tuple[Problem, ...]:
    """A card that cannot hold the model's own weights, its share of the experts and the context."""
    if card is None:
        return ()
    context, layers = recipe.context, recipe.experts.layers
    most = int(card.memory_mib * 1024**2 * context.memory_fraction)
    an_expert = layers * context.expert_bytes
    experts, cache = recipe.offload.gpu_experts * an_expert, context.total_tokens * context.bytes_per_token
    if context.weights_bytes + experts + cache <= most:
        return ()
    tokens = (most - context.weights_bytes - experts) // context.bytes_per_token
    beside = (most - context.weights_bytes - context.length * context.bytes_per_token) // an_expert
    if tokens >= context.length:
        do = f"set context.total_tokens to at most {tokens}"
    elif experts and beside >= 0:
        do = f"set offload.gpu_experts to at most {beside} and context.total_tokens to {context.length}"
    else:
        do = "choose a shorter context.length with its total_tokens, or a larger card"
    sizes = (
        f"weights {_gib(context.weights_bytes)}, experts {_gib(experts)}, {context.total_tokens} tokens {_gib(cache)}"
    )
    wanted = f"at most {_gib(most)} ({context.memory_fraction:g} of its {_gib(card.memory_mib * 1024**2)})"
    total = _gib(context.weights_bytes + experts + cache)
    return (Problem(f"the context of {recipe.name} does not fit the card", f"{total} ({sizes})", wanted, do),)


def _usable(state: HostState) -> dict[int, int]:
    """node -> bytes that can hold weights."""
    return {node.node: node.mem_total - _gigantic(node.node, state) for node in state.nodes if node.mem_total}


def _gigantic(node: int, state: HostState) -> int:
    pages = state.sysfs.get(GIGANTIC_PAGES.replace("node*", f"node{node}"), "0")
    return int(pages) * GIB if pages.isdecimal() and len(pages) < 10 else 0


def _pool_pages(hugepages: Hugepages, shard: int) -> int:
    if hugepages.policy != "hugetlb":
        return 0
    return hugepages.per_node or -(-int(shard * POOL_MARGIN) // HUGEPAGE_BYTES)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
