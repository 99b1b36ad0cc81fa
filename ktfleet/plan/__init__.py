"""The plan: a pure function of what a host is and what is wanted of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import (
    cores,
    cpu_lists,
    gpu,
    guard_rails,
    launch,
    memory,
    notes,
    overlay,
    readback,
    refusals,
    server,
    stack,
    unknown,
    weights,
    worksheet,
)
from ktfleet.plan.crossings import Subject
from ktfleet.plan.row import Layout, Setting, Writer
from ktfleet.plan.settings import POSSIBLE_CPUS, UNCORE_MAX, not_asked_for, resolve
from ktfleet.problem import Problem
from ktfleet.recipes import Recipe
from ktfleet.server.job import Job as Server
from ktfleet.sources import HubSource
from ktfleet.weights.job import Job


@dataclass(frozen=True)
class Plan:
    """Everything that was decided for one host. With refusals it is not to be applied.

    accepted: guard rails that are crossed with a reason. not_served: why there is no server, if so. notes: what a
    person should know although it stops nothing.
    """

    config: Workstation
    recipe: Recipe
    cores: cores.Cores
    memory: memory.Memory
    settings: tuple[Setting, ...]
    not_asked_for: tuple[Setting, ...]
    refusals: tuple[Problem, ...]
    unknown: tuple[Problem, ...]
    worksheet: tuple[worksheet.Item, ...]
    notes: tuple[str, ...]
    driver: gpu.Installation | None
    accepted: tuple[guard_rails.Accepted, ...]
    launch: launch.Launch
    weights: Job | None
    stack: stack.Installation | None
    overlay: overlay.Overlay | None
    server: Server | None
    not_served: str | None

    def of(self, writer: Writer, concern: str | None = None) -> tuple[Setting, ...]:
        """The settings of one writer, and of one concern if given: what templates and tasks ask for."""
        return tuple(s for s in self.settings if s.row.writer is writer and concern in (None, s.row.concern))

    @property
    def fronted(self) -> bool:
        """Whether clients are asked for a key."""
        return self.server is not None and self.config.server.key is not None

    @property
    def hub_token_file(self) -> str | None:
        """On the host: where systemd finds the hub's token."""
        wanted = self.config.weights
        return wanted.source.token_file if wanted and isinstance(wanted.source, HubSource) else None

    def to_json(self) -> dict[str, Any]:
        """The interface of `ktfleet plan --json`: keys are kept, others may be added."""
        return {
            "refusals": [asdict(problem) for problem in self.refusals],
            "unknown": [asdict(problem) for problem in self.unknown],
            "notes": list(self.notes),
            "accepted": [each.to_json() for each in self.accepted],
            "worksheet": [asdict(item) for item in self.worksheet],
            "recipe": self.recipe.name,
            "override": self.config.override,
            "pools": self.cores.pools,
            "cpuinfer": self.cores.cpuinfer,
            "worker_cpus": {str(node): list(cpus) for node, cpus in self.cores.worker_cpus.items()},
            "other_cpus": list(self.cores.other_cpus),
            "memory": {"shard_bytes": self.memory.shard_bytes, "reserve_bytes": self.memory.reserve_bytes},
            "hugepages": {
                "policy": self.memory.policy,
                "per_node": {str(node): self.memory.hugepages_per_node for node in self.cores.worker_cpus},
            },
            "packages": list(self.driver.packages) if self.driver else [],
            "weights": {"checkpoint": self.weights.checkpoint, "converted": self.weights.shards}
            if self.weights
            else None,
            "stack": self.stack.job.folder if self.stack else None,
            "overlay": self.overlay.folder if self.overlay else None,
            "served": self.config.server.front or self.config.server.url if self.server else None,
            "not_served": self.not_served,
            "settings": [
                {"key": s.key, "wanted": s.wanted, "why": s.row.why, "source": s.row.source} for s in self.settings
            ],
        }


def make(state: HostState, config: Workstation, recipe: Recipe) -> Plan:
    """Decide everything for one host. Never raises: what is wrong is in `refusals` and `unknown`."""
    division = cores.assign(state, config.cpuinfer or recipe.offload.cpuinfer)
    need = memory.divide(recipe, config.hugepages, division.pools)
    layout = _layout(state, config, need)
    settings = resolve(layout)
    started = launch.make(state, config, recipe, division, need, settings)
    driver = gpu.installation(state, config)
    served = server.job(state, config, recipe, started, division.pools)
    return Plan(
        config=config,
        recipe=recipe,
        cores=division,
        memory=need,
        settings=settings,
        not_asked_for=not_asked_for(layout),
        refusals=(
            *refusals.refusals(state, config, recipe, need),
            *started.problems,
            *(server.problems(state, config) if served else ()),
        ),
        unknown=unknown.unknown(state, config),
        worksheet=worksheet.items(state),
        notes=(*division.notes, *need.notes, *(driver.notes if driver else ()), *notes.notes(state)),
        driver=driver,
        accepted=guard_rails.accepted(Subject(state, config, recipe, need)),
        launch=started,
        weights=weights.job(config, recipe, division.cpuinfer or 1),
        stack=stack.installation(state, config),
        overlay=overlay.overlay(recipe),
        server=served,
        not_served=server.skipped(state, config, recipe, division.pools),
    )


def _layout(state: HostState, config: Workstation, need: memory.Memory) -> Layout:
    # Interrupts stay off every core that may carry a worker: fewer workers (a tuner's try) move nothing.
    division = cores.assign(state)
    workers = [cpu for cpus in division.worker_cpus.values() for cpu in cpus]
    everyone = tuple(cpu.cpu for cpu in state.cpus)
    possible = cpu_lists.parse(state.sysfs.get(POSSIBLE_CPUS, "")) or everyone
    return Layout(
        config,
        need,
        uncore_max_khz=readback.highest(UNCORE_MAX, state),
        worker_cpus=cpu_lists.ranges(workers),
        other_mask=cpu_lists.mask(division.other_cpus or everyone, max(possible, default=0) + 1),
    )
