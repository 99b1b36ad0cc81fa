"""Does torch, as it is installed, compute the routing as it is meant? On the CPU, eager, beside plain Python."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ktfleet.problem import Problem
from ktfleet.runtime import routing
from ktfleet.runtime.settings import Settings

TOKENS = 5
_EXPERTS = 8
_NEAR = 1e-5
_DO = "prove the server's environment with checks/stack.py; do not serve with it"


def problems(asked: Settings) -> Iterator[Problem]:
    """One for each thing that is not as wanted."""
    generator = torch.Generator().manual_seed(1)
    experts = max(_EXPERTS, asked.per_token)
    weights = torch.rand((TOKENS, asked.per_token), generator=generator) + 0.01
    rows = [torch.randperm(experts, generator=generator)[: asked.per_token] for _ in range(TOKENS)]
    ids = torch.stack(rows).to(torch.int32)
    ids[-1, 0] = routing.NONE
    counted = torch.zeros(2, dtype=torch.int64)
    seen, kept = routing.cull(asked.per_token, asked.top_k, asked.least, asked.share or 0.0)(weights, ids, counted)
    wanted = [keep(row, there, asked) for row, there in zip(weights.tolist(), ids.tolist(), strict=True)]
    if kept.tolist() != [places for _, places in wanted]:
        yield _problem("which experts are left out", str(kept.tolist()), str([places for _, places in wanted]))
    if not (seen - torch.tensor([shares for shares, _ in wanted])).abs().max() <= _NEAR:
        yield _problem("the weights of the others", str(seen.tolist()), str([shares for shares, _ in wanted]))
    there = int((ids >= 0).sum()), int((kept >= 0).sum())
    if tuple(counted.tolist()) != there:
        yield _problem("what is counted", str(counted.tolist()), str(list(there)))
    yield from _deferral(weights, ids, experts)
    yield from _remapping(ids, experts)


def keep(weights: list[float], ids: list[int], asked: Settings) -> tuple[list[float], list[int]]:
    """One token, in plain Python: what the kept experts weigh, and which they are."""
    order = sorted((slot for slot, place in enumerate(ids) if place >= 0), key=lambda slot: -weights[slot])
    total = sum(weights[slot] for slot in order)
    least = asked.top_k if asked.least is None else asked.least
    bar = (asked.share or 0.0) * total
    kept = {slot for rank, slot in enumerate(order[: asked.top_k]) if rank < least or weights[slot] >= bar}
    scale = total / sum(weights[slot] for slot in kept) if kept else 1.0
    shares = [weights[slot] * scale if slot in kept else 0.0 for slot in range(len(ids))]
    return shares, [place if slot in kept else routing.NONE for slot, place in enumerate(ids)]


def _deferral(weights: torch.Tensor, ids: torch.Tensor, experts: int) -> Iterator[Problem]:
    """An expert that one token protects is immediate for all; -1 stays -1 on both sides."""
    protected = ids.shape[1] // 2
    safe = set()
    for row, places in zip(weights.tolist(), ids.tolist(), strict=True):
        there = sorted((slot for slot, place in enumerate(places) if place >= 0), key=lambda slot: -row[slot])
        safe |= {places[slot] for slot in there[:protected]}
    now, later = routing.split_deferred(ids.long(), weights, protected, experts)
    wanted = [[[p if p in safe else -1 for p in row] for row in ids.tolist()],
              [[-1 if p in safe else p for p in row] for row in ids.tolist()]]  # fmt: skip
    if [now.tolist(), later.tolist()] != wanted:
        yield _problem("which experts are deferred", str([now.tolist(), later.tolist()]), str(wanted))


def _remapping(ids: torch.Tensor, experts: int) -> Iterator[Problem]:
    """The last expert is on the card: what -1 would be taken for."""
    on_card = torch.zeros(experts, dtype=torch.bool)
    on_card[-1] = True
    to_card = torch.where(on_card, 0, -1).to(torch.int32)
    seen = routing.remap(ids, on_card, to_card).tolist()
    wanted = [[0 if place == experts - 1 else -1 for place in row] for row in ids.tolist()]
    if seen != wanted:
        yield _problem("the card's own indices", str(seen), str(wanted))


def _problem(what: str, seen: str, wanted: str) -> Problem:
    return Problem(f"the routing's self-test: {what}", seen[:200], wanted[:200], _DO)
