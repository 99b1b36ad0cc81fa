"""What is done to the routing of a token: tensor operations of static shape that never wait for the card, so that a
CUDA graph can hold them. This module needs torch alone.

ids: int [tokens, width], the experts of a token, -1: none. weights: float32 [tokens, width], their shares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

NONE = -1
"""An id that the expert kernels of CPU and card skip: no weight of it is read."""

Cull = Callable[["Tensor", "Tensor", "Tensor"], tuple["Tensor", "Tensor"]]


def cull(width: int, top_k: int, least: int | None = None, share: float = 0.0) -> Cull:
    """A function (weights, ids, counted) -> (weights, ids) that keeps the `top_k` experts of most weight of each
    token, the first of equals first. With `least`, those after the first `least` need `share` of the token's weight,
    too.

    What is left out gets the id -1 and no weight; what is kept is scaled to the sum of all, which is what a router of
    fewer experts would have given. counted: int64 [2], to which the experts that were there and those that are kept
    are added.
    """
    always = top_k if least is None else least

    def keep_best(weights: Tensor, ids: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        # As a fact, not a variable: the compiler then unrolls what runs along it.
        torch._check(ids.shape[1] == width)
        torch._check(weights.shape[1] == width)
        there = ids >= 0
        rank = _rank(torch.where(there, weights, float("-inf")))
        total = torch.where(there, weights, 0.0).sum(-1, keepdim=True)
        keep = there & (rank < top_k) & ((rank < always) | (weights >= share * total))
        kept = torch.where(keep, weights, 0.0)
        left = kept.sum(-1, keepdim=True)
        scale = torch.where(left > 0, total / left, 1.0)
        counted.add_(torch.stack((there.sum(), keep.sum())))
        return kept * scale, torch.where(keep, ids, NONE)

    return keep_best


def _rank(worth: Tensor) -> Tensor:
    """The place of each slot of a token by its worth, from 0; of equals the first one is before."""
    slot = torch.arange(worth.shape[1], device=worth.device)
    mine, other = worth[:, :, None], worth[:, None, :]
    return ((other > mine) | ((other == mine) & (slot[None, :] < slot[:, None]))).sum(-1)


def compiled(function: Any) -> Any:
    """The same as a few kernels instead of thirty. It has to run once before a graph is captured."""
    return torch.compile(function, dynamic=True, fullgraph=True)


def warm(function: Cull, width: int, device: torch.device, shares: torch.dtype, ids: torch.dtype) -> None:
    """Compile for one token and for several, which are two programs. A program is of one mode (inference_mode, no_grad)
    alone: call this in the server's.
    """
    for tokens in (1, 2, 3):
        weights = torch.ones((tokens, width), device=device, dtype=shares)
        places = torch.arange(width, device=device, dtype=ids).repeat(tokens, 1)
        function(weights, places, torch.zeros(2, dtype=torch.int64, device=device))


def split_deferred(ids: Tensor, scores: Tensor, protected: int, experts: int) -> tuple[Tensor, Tensor]:
    """(immediate, deferred) ids: kt-kernel's `select_deferred_experts`, for ids with -1 among them, too.

    An expert that is among the `protected` best of any token is immediate for all of them. The original scatters by id
    and dies of -1; here -1 has a place of its own, behind the last expert, that protects nothing.
    """
    there = ids >= 0
    best = there & (_rank(torch.where(there, scores, float("-inf"))) < protected)
    flags = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
    flags.scatter_(0, torch.where(best, ids, experts).reshape(-1), 1)
    immediate = there & torch.gather(flags, 0, torch.where(there, ids, 0).reshape(-1)).ne(0).view_as(ids)
    return torch.where(immediate, ids, NONE), torch.where(there & ~immediate, ids, NONE)


def remap(ids: Tensor, on_card: Tensor, to_card: Tensor) -> Tensor:
    """The card's own index of each expert that is there, -1 for every other one: sglang's `mask_and_remap_expert_ids`,
    in which an id of -1 means the last expert.
    """
    there = ids >= 0
    place = torch.where(there, ids, 0)
    return torch.where(there & on_card[place], to_card[place], NONE)


def tally(ids: Tensor, counts: Tensor) -> None:
    """Add how often each expert is there to counts: int64 [experts + 1], whose last place is that of -1."""
    place = torch.where(ids >= 0, ids, counts.shape[0] - 1).reshape(-1).to(torch.int64)
    counts.scatter_add_(0, place, torch.ones_like(place))
