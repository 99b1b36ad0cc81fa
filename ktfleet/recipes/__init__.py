"""What is served: one TOML a recipe, found by name in this folder or by path."""

from __future__ import annotations

import difflib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from ktfleet.problem import Problem, Refused
from ktfleet.recipes.checkpoint import Checkpoint
from ktfleet.validation import Strict, read_toml, validated

FOLDER = Path(__file__).parent
GIB = 1024**3
Positive = Annotated[int, Field(ge=1, le=10**12)]


class Experts(Strict):
    """The routed experts. `bytes` is one expert with its scales, as kt-kernel holds it in memory."""

    layers: Positive
    count: Positive
    per_token: Positive
    hidden: Positive
    intermediate: Positive
    bytes: Positive

    @model_validator(mode="after")
    def _numbers_agree(self) -> Self:
        weights = 3 * self.hidden * self.intermediate
        if self.per_token > self.count:
            raise ValueError(f"per_token of at most count, {self.count}")
        if not weights // 2 <= self.bytes <= weights * 4:
            raise ValueError(f"bytes for 4 to 32 bits a weight, {weights // 2} to {weights * 4}")
        return self

    @cached_property
    def total_bytes(self) -> int:
        """All routed experts of all layers, in bytes."""
        return self.layers * self.count * self.bytes


class Memory(Strict):
    """What each NUMA node needs beside its shard, in MiB: the system, the server's processes, page cache."""

    reserve_per_node_mib: Positive


class Recipe(Strict):
    """A model, the kt-kernel method its experts use, and what both demand of a host.

    cpu_flags are names as in /proc/cpuinfo. Sizes are bytes unless the name says otherwise.
    """

    name: str
    model: str
    method: str
    cpu_flags: Annotated[tuple[str, ...], Field(strict=False)]
    experts: Experts
    memory: Memory
    checkpoint: Checkpoint | None = None

    def shard_bytes(self, pools: int) -> int:
        """Bytes of expert weights that each of `pools` NUMA nodes holds (rounded up)."""
        return -(-self.experts.total_bytes // pools)

    @property
    def reserve_bytes(self) -> int:
        """Bytes that each node keeps for everything but expert weights."""
        return self.memory.reserve_per_node_mib * 1024**2


def names() -> list[str]:
    """The packaged recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name_or_path: str) -> Recipe:
    """Load a packaged recipe by name, or a recipe file by path (anything with a slash or .toml).

    Raises Refused for an unknown name (the nearest one is suggested), an unreadable file, a bad key.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    elif name_or_path in names():
        path = FOLDER / f"{name_or_path}.toml"
    else:
        close = difflib.get_close_matches(name_or_path, names(), n=1)
        do = f"did you mean '{close[0]}'?" if close else "use one of these, or the path of a TOML file"
        raise Refused((Problem("recipe", f"'{name_or_path}'", f"one of {', '.join(names())}", do),))
    return validated(Recipe, read_toml(path), str(path))
