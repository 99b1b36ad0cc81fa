"""What the server of a host is to be started from, or why there is none."""

from __future__ import annotations

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import cpu_lists, launch, weights
from ktfleet.plan.places import STACK
from ktfleet.recipes import Recipe
from ktfleet.server.job import Job

FRONT_PACKAGE = "haproxy"
"""In the main archive of every supported distribution, streams without buffering, and reads the key from a file."""


def job(state: HostState, config: Workstation, recipe: Recipe, started: launch.Launch, pools: int) -> Job | None:
    """What its unit is told. None when there is to be no server: `skipped` says why."""
    if skipped(state, config, recipe, pools):
        return None
    got = weights.job(config, recipe)
    card = config.gpu
    return Job(
        argv=started.argv,
        environment=started.environment,
        cpus=cpu_lists.ranges(started.cpus),
        url=config.server.url,
        model=recipe.api.model_name,
        layers=recipe.experts.layers,
        ready_s=recipe.start_limit_s,
        stack=STACK,
        watched={"weights": weights.proofs(got)} if got else {},
        card_mib=int(card.memory_mib * recipe.context.memory_fraction) if card else None,
    )


def skipped(state: HostState, config: Workstation, recipe: Recipe, pools: int) -> str | None:
    """Why nothing is served, if so."""
    if config.stack is None:
        return "nothing is served: the configuration says stack = None"
    if config.weights is not None:
        return None
    missing = [folder for folder in launch.folders(config, recipe, pools) if state.folders.get(folder) is None]
    if missing:
        return f"nothing is served: the configuration says weights = None, and the host has no {missing[0]}"
    return None
