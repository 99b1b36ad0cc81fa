"""What converted expert weights consist of: every tensor's name, type and size, from the model's sizes.

As kt-kernel 0.7.2 writes and reads AMXINT4: each pool has its slice of the intermediate dimension. A weight is two
values a byte; a scale is a float32 for each row of a projection, and the rows of gate and up are sliced, those of down
are not. Checked against converted shards (2 pools: 2,097,152 B, and scales of 4,096, 4,096 and 16,384 B).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

PROJECTIONS = ("down", "gate", "up")
KINDS = ("scale", "weight")
KEY = re.compile(
    r"blk\.(?P<layer>\d{1,4})\.ffn_(?P<projection>down|gate|up)_exps\.(?P<expert>\d{1,5})"
    r"\.numa\.(?P<pool>\d{1,3})\.(?P<kind>weight|scale)"
)
"""A tensor's name in the merged layout."""

LAYER_FOLDER = re.compile(r"_layer_(\d{1,4})")
POOL_FOLDER = re.compile(r"_numa_(\d{1,3})")
FILE = re.compile(
    r"INT4_(?P<projection>down|gate|up)_(?P<expert>\d{1,5})_(?P<bytes>\d{1,12})Byte_(?P<kind>quant|scale)_\.kt"
)
"""A tensor's file in the .kt layout, in _layer_L/_numa_N/."""


@dataclass(frozen=True)
class Part:
    """What all experts of one layer have in one pool's shard. `bytes` is the size of each expert's tensor.

    dtype: as safetensors names it; the int4 pairs are stored as bytes. shape: the converter writes flat tensors.
    """

    pool: int
    projection: str
    kind: str
    bytes: int
    dtype: str
    shape: tuple[int]


@dataclass(frozen=True)
class Layout:
    """A model's routed experts, converted to AMXINT4 for a number of pools."""

    layers: int
    experts: int
    hidden: int
    intermediate: int
    pools: int

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return self.layers * self.per_layer

    @property
    def per_layer(self) -> int:
        """How many tensors a layer has."""
        return self.experts * self.pools * len(PROJECTIONS) * len(KINDS)

    @property
    def total_bytes(self) -> int:
        """Of all tensors."""
        return self.layers * self.experts * self.pools * sum(self.size(p, k) for p in PROJECTIONS for k in KINDS)

    def size(self, projection: str, kind: str) -> int:
        """Bytes of one tensor."""
        rows = self.intermediate // self.pools
        if kind == "weight":
            return self.hidden * rows // 2
        return 4 * (self.hidden if projection == "down" else rows)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Everything that a layer has of each expert."""
        return tuple(
            Part(pool, projection, kind, size, *(("I8", (size,)) if kind == "weight" else ("F32", (size // 4,))))
            for pool in range(self.pools)
            for projection in PROJECTIONS
            for kind in KINDS
            for size in (self.size(projection, kind),)
        )

    def named(self, layer: int) -> Iterator[tuple[Part, str]]:
        """Every tensor of one layer, by its name in the merged layout."""
        for part in self.parts:
            before, after = f"blk.{layer}.ffn_{part.projection}_exps.", f".numa.{part.pool}.{part.kind}"
            for expert in range(self.experts):
                yield part, f"{before}{expert}{after}"

    def filed(self, layer: int) -> Iterator[tuple[Part, str]]:
        """Every tensor of one layer, by its file in the .kt layout."""
        for part in self.parts:
            before = f"_layer_{layer}/_numa_{part.pool}/INT4_{part.projection}_"
            after = f"_{part.bytes}Byte_{'quant' if part.kind == 'weight' else 'scale'}_.kt"
            for expert in range(self.experts):
                yield part, f"{before}{expert}{after}"
