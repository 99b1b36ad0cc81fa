"""What the running server is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ktfleet.config import HugepagePolicy
from ktfleet.host.state import HostState
from ktfleet.plan import Plan
from ktfleet.plan.cores import physical_cores


@dataclass(frozen=True)
class Wanted:
    """cores: PU -> all PUs of its physical core. nodes: PU -> its node. workers: node -> the PUs planned for its
    workers. others: the PUs for every other thread. shard_bytes: experts of each node. gpu: a card is to serve.
    """

    cores: Mapping[int, tuple[int, ...]]
    nodes: Mapping[int, int]
    workers: Mapping[int, tuple[int, ...]]
    others: tuple[int, ...]
    shard_bytes: int
    policy: HugepagePolicy
    gpu: bool


def wanted(plan: Plan, state: HostState) -> Wanted:
    """Of one host, by its plan and its topology."""
    seats = [(node, core) for node, cores in physical_cores(state).items() for core in cores]
    return Wanted(
        cores={pu: core for _, core in seats for pu in core},
        nodes={pu: node for node, core in seats for pu in core},
        workers=plan.cores.worker_cpus,
        others=plan.cores.other_cpus,
        shard_bytes=plan.memory.shard_bytes,
        policy=plan.memory.policy,
        gpu=plan.config.gpu is not None,
    )
