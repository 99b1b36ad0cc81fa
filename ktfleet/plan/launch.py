"""The server's exact start: its command line and its environment, from the plan's parts alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import join, quote

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import cpu_lists
from ktfleet.plan.catalogue import Scalar, Value, catalogue
from ktfleet.plan.cores import Cores
from ktfleet.plan.environment import OWNED as OWNED_VARIABLES
from ktfleet.plan.environment import UNSET, environment
from ktfleet.plan.memory import Memory
from ktfleet.plan.places import MODELS, STACK_PYTHON
from ktfleet.plan.row import Setting
from ktfleet.problem import Problem
from ktfleet.recipes import Recipe
from ktfleet.recipes.model import CONVERTED

MODULE = "sglang.launch_server"

WATCHDOG_S = 1200
"""Seconds without an answer of the scheduler before sglang kills itself. Its default of 300 ends the first start in the
middle of a compilation (sglang #24588)."""

OWNED = {
    "api-key": "server.key",
    "admin-api-key": "server.key",
    "chunked-prefill-size": "context.prefill_chunk",
    "config": "the recipe's own keys",
    "context-length": "context.length",
    "host": "server.host",
    "init-expert-location": "offload.placement_file",
    "kt-cpuinfer": "offload.cpuinfer",
    "kt-expert-placement-strategy": "offload.placement",
    "kt-gpu-experts-ratio": "offload.gpu_experts",
    "kt-gpu-prefill-token-threshold": "offload.gpu_prefill_threshold",
    "kt-max-deferred-experts-per-token": "offload.deferred",
    "kt-method": "method",
    "kt-num-gpu-experts": "offload.gpu_experts",
    "kt-numa-nodes": "offload.numa_nodes",
    "kt-threadpool-count": "offload.pools",
    "kt-weight-path": "data.mount",
    "max-running-requests": "context.running_requests",
    "max-total-tokens": "context.total_tokens",
    "mem-fraction-static": "context.memory_fraction",
    "model-path": "data.mount",
    "port": "server.port",
    "preferred-sampling-params": "sampling",
    "reasoning-parser": "api.reasoning_parser",
    "served-model-name": "api.model_name",
    "speculative-algorithm": "speculation",
    "speculative-eagle-topk": "speculation",
    "speculative-num-draft-tokens": "speculation.draft_tokens",
    "speculative-num-steps": "speculation.steps",
    "tool-call-parser": "api.tool_call_parser",
}
"""Flags that follow from a key of recipe or configuration -> that key: `flags` must not give them a second time."""


@dataclass(frozen=True)
class Launch:
    """What starts the server. argv: the command's words; environment: all of it, nothing is inherited; unset:
    beginnings of names that an environment which is not empty must lose; cpus: where its threads may run (workers
    bind themselves, whatever it says); problems: what the server's own parser would refuse.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    unset: tuple[str, ...]
    cpus: tuple[int, ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, object]:
        """The interface of `ktfleet launch --json`: keys are kept, others may be added."""
        return {
            "argv": list(self.argv),
            "env": dict(self.environment),
            "unset": list(self.unset),
            "cpu_affinity": list(self.cpus),
        }

    def shell(self) -> str:
        """The same as one command that a shell takes as it stands."""
        affinity = f"taskset --cpu-list {cpu_lists.ranges(self.cpus)} " if self.cpus else ""
        variables = [quote(f"{name}={value}") for name, value in self.environment.items()]
        words, flags = self.argv[:3], _grouped(self.argv[3:])
        return " \\\n  ".join((f"{affinity}env -i", *variables, join(words), *flags))


def make(
    state: HostState,
    config: Workstation,
    recipe: Recipe,
    division: Cores,
    need: Memory,
    settings: tuple[Setting, ...],
) -> Launch:
    """Never raises: what is wrong is in `problems`."""
    more = {name: value for name, value in recipe.flags.items() if _canonical(name) not in OWNED}
    flags = {**_derived(config, recipe, division), **more}
    known = catalogue()
    return Launch(
        argv=(STACK_PYTHON, "-m", MODULE, *known.argv(flags)),
        environment=environment(state, config, recipe, division, need, settings),
        unset=UNSET,
        cpus=division.other_cpus,
        problems=(*_given_twice(recipe), *_variables_given_twice(recipe), *known.problems(flags, recipe.name)),
    )


def folders(config: Workstation, recipe: Recipe, pools: int) -> tuple[str, str]:
    """The checkpoint's folder and the experts': converted ones are of so many pools."""
    pinned, mount = recipe.checkpoint, config.data.mount if config.data else MODELS
    checkpoint = f"{mount}/{pinned.name}/{pinned.revision}" if pinned else f"{mount}/{recipe.model}"
    return checkpoint, f"{checkpoint}-{recipe.method}-p{pools}" if recipe.method in CONVERTED else checkpoint


def _derived(config: Workstation, recipe: Recipe, division: Cores) -> dict[str, Value]:
    checkpoint, experts = folders(config, recipe, division.pools)
    flags: dict[str, Value | None] = {
        "model-path": checkpoint,
        "served-model-name": recipe.api.model_name,
        "host": config.server.listens,
        "port": config.server.own_port,
        "kt-weight-path": experts,
        "kt-method": recipe.method,
        "kt-cpuinfer": division.cpuinfer,
        "kt-threadpool-count": division.pools,
        # The pool's own number: any other order binds memory to the wrong node.
        "kt-numa-nodes": tuple(range(division.pools)) or None,
        **_offload(recipe),
        "context-length": recipe.context.length,
        "max-total-tokens": recipe.context.total_tokens,
        "max-running-requests": recipe.context.running_requests,
        "chunked-prefill-size": recipe.context.prefill_chunk,
        "mem-fraction-static": recipe.context.memory_fraction,
        "watchdog-timeout": WATCHDOG_S,
        # The server's own count of tokens: what a measured rate has to agree with.
        "enable-metrics": True,
        "preferred-sampling-params": _sampling(recipe),
        "tool-call-parser": recipe.api.tool_call_parser,
        "reasoning-parser": recipe.api.reasoning_parser,
        **_speculation(recipe),
    }
    return {name: value for name, value in flags.items() if value is not None}


def _offload(recipe: Recipe) -> dict[str, Value | None]:
    """Without a number of GPU experts, also without 0, kt-kernel would be off and every expert on the GPU."""
    offload = recipe.offload
    return {
        "kt-num-gpu-experts": offload.gpu_experts,
        "kt-expert-placement-strategy": offload.placement if offload.gpu_experts else None,
        "init-expert-location": offload.placement_file if offload.gpu_experts else None,
        "kt-max-deferred-experts-per-token": offload.deferred or None,
        "kt-gpu-prefill-token-threshold": offload.gpu_prefill_threshold,
    }


def _sampling(recipe: Recipe) -> dict[str, Scalar] | None:
    return recipe.sampling.model_dump(exclude_none=True) or None


def _speculation(recipe: Recipe) -> dict[str, Value]:
    speculation = recipe.speculation
    if speculation is None:
        return {}
    return {
        "speculative-algorithm": speculation.algorithm,
        "speculative-num-steps": speculation.steps,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": speculation.draft_tokens,
    }


def _canonical(name: str) -> str:
    option = catalogue().options.get(name)
    return option.name if option else name


def _given_twice(recipe: Recipe) -> Iterator[Problem]:
    for name in recipe.flags:
        owner = OWNED.get(_canonical(name))
        if owner:
            # The value is not shown: it may be a key.
            yield Problem(f"{recipe.name}: flags.{name}", "a flag that has its own key", owner, f"set {owner} instead")


def _variables_given_twice(recipe: Recipe) -> Iterator[Problem]:
    for name in recipe.environment:
        if name in OWNED_VARIABLES or name.startswith("LD_"):
            what, do = f"{recipe.name}: environment.{name}", f"remove environment.{name}"
            yield Problem(what, "a variable that follows from the plan", "none of the recipe's own", do)


def _grouped(words: tuple[str, ...]) -> list[str]:
    """One line a flag, with its values."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append([])
        lines[-1].append(word)
    return [join(line) for line in lines]
