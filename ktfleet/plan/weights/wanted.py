"""What the weights of a host are to be, from its configuration, its recipe and its pools."""

from __future__ import annotations

from dataclasses import replace

from ktfleet import sources
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.places import STACK_PYTHON
from ktfleet.problem import Problem, Refused
from ktfleet.recipes import Recipe
from ktfleet.recipes.model import CONVERTED
from ktfleet.sources import HubSource
from ktfleet.weights import manifest
from ktfleet.weights.job import Converter, Copy, Hub, Job
from ktfleet.weights.layout import Layout

CONVERTIBLE = "AMXINT4"
"""The method whose converted layout is known here."""


def layout(recipe: Recipe, pools: int) -> Layout:
    """The recipe's experts as converted for so many pools. Raises Refused when they cannot be."""
    experts = recipe.experts
    if recipe.method != CONVERTIBLE:
        do = "verify another recipe's weights, or choose one with that method"
        raise Refused((Problem("the recipe has no converted weights", recipe.method, CONVERTIBLE, do),))
    if pools < 1 or experts.intermediate % (2 * pools):
        wanted = f"a divisor of {experts.intermediate // 2}, half the experts' intermediate size"
        raise Refused((Problem("the number of pools", str(pools), wanted, "pass as many as there are NUMA nodes"),))
    return Layout(experts.layers, experts.count, experts.hidden, experts.intermediate, pools)


def job(config: Workstation, recipe: Recipe, threads: int = 1) -> Job | None:
    """What the host has to get. None when nothing is wanted, or when it cannot be told (see refusals).

    Pools are one a socket: a host that has not as many nodes as sockets is refused. threads: of the converter.
    """
    pools = config.hardware.sockets
    weights, data, checkpoint = config.weights, config.data, recipe.checkpoint
    if weights is None or data is None or checkpoint is None:
        return None
    source = weights.source
    folder = f"{data.mount}/{checkpoint.name}/{checkpoint.revision}"
    made = Job(
        repository=checkpoint.repository,
        revision=checkpoint.revision,
        checkpoint=folder,
        checkpoint_bytes=checkpoint.bytes,
        index_sha256=checkpoint.index_sha256,
        source=Hub(source.endpoint) if isinstance(source, HubSource) else Copy(source.checkpoint, source.shards),
    )
    if recipe.method not in CONVERTED:
        return made
    try:
        wanted = layout(recipe, pools)
    except Refused:
        return None
    return replace(
        made,
        shards=f"{folder}-{recipe.method}-p{pools}",
        shards_bytes=wanted.total_bytes + checkpoint.copied_bytes,
        layout=wanted,
        converter=_converter(weights.converter, threads, checkpoint.converter_input) if weights.converter else None,
    )


def _converter(program: sources.Converter, threads: int, input_type: str) -> Converter:
    pinned = program.model_dump()
    return Converter(**pinned, python=STACK_PYTHON, threads=threads, input_type=input_type)


def proofs(job: Job) -> tuple[str, ...]:
    """The files on the host that say what is complete: of the checkpoint, then of the converted weights."""
    return tuple(f"{folder}/{manifest.NAME}" for folder in (job.checkpoint, job.shards) if folder)


def have_checkpoint(job: Job, state: HostState) -> bool:
    """Whether the checkpoint is complete on the host."""
    return state.files.get(proofs(job)[0]) is not None


def have_shards(job: Job, state: HostState) -> bool:
    """Whether the converted weights are; true when none are wanted."""
    return job.shards is None or state.files.get(proofs(job)[1]) is not None


def downloaded(job: Job, state: HostState) -> bool:
    """Whether nothing is left to be got."""
    copies = isinstance(job.source, Copy) and job.source.shards is not None
    return have_checkpoint(job, state) and (have_shards(job, state) or not copies)
