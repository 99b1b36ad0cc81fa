"""What a layer of experts has to compute, in numpy: SwiGLU experts with the roundings that kt-kernel's formats have.

It needs numpy, which the server's environment has: it runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ktfleet.measure.expert_layer import GROUP, PROJECTIONS, Layer

Array = Any
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""The magnitudes of a 4-bit float; the highest bit of its code is the sign."""


def to_bf16(values: Array) -> Array:
    """The codes of the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(codes: Array) -> Array:
    """float32 of bf16's codes."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def rounded(values: Array) -> Array:
    """What is left of float32 that is kept as bf16."""
    return from_bf16(to_bf16(values))


def int4(weights: Array) -> Array:
    """AMXINT4: one scale a row, to 8 bits first, then to -7..7 in steps of 16, halves away from zero."""
    scale = np.abs(weights).max(-1, keepdims=True) / np.float32(112)
    eight = np.rint(weights / scale)
    return np.sign(eight) * np.floor((np.abs(eight) + 8) / 16) * 16 * scale


def int8(rows: Array) -> Array:
    """AMXINT4's activations: one scale a token."""
    scale = np.abs(rows).max(-1, keepdims=True) / np.float32(127)
    return np.rint(rows / np.where(scale, scale, 1)) * scale


def mxfp4(packed: Array, scales: Array) -> Array:
    """What packed codes (low nibble first) and their scales' bf16 codes stand for."""
    codes = np.stack((packed & 15, packed >> 4), -1).reshape(*packed.shape[:-1], -1)
    values = E2M1[codes & 7] * np.where(codes & 8, np.float32(-1), np.float32(1))
    return values * np.repeat(from_bf16(scales), GROUP, -1)


def times(rows: Array, weights: Array) -> Array:
    """rows x weights^T in float32."""
    return rows @ weights.T


def experts(
    x: Array,
    ids: Array,
    mix: Array,
    weights: tuple[Callable[[int], Array], ...],
    activations: Callable[[Array], Array] = lambda rows: rows,
    limit: float = 0.0,
    multiply: Callable[[Array, Array], Array] = times,
) -> Array:
    """Each token through its experts, mixed; what a kernel keeps as bf16 is bf16 here.

    weights: of gate, up and down, by the expert. limit: on what the activation gets, 0: none.
    """
    gate, up, down = weights
    result = np.zeros_like(x)
    for token, row in enumerate(x):
        for expert, share in zip(ids[token], mix[token], strict=True):
            inner = activations(row[None].astype(np.float32))
            g, u = (rounded(multiply(inner, of(expert).astype(np.float32))) for of in (gate, up))
            if limit:
                g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
            hidden = activations(rounded(g / (1 + np.exp(-g)) * u))
            result[token] += share * rounded(multiply(hidden, down(expert).astype(np.float32)))[0]
    return rounded(result)


def distance(seen: Array, wanted: Array) -> float:
    """Relative L1."""
    return round(float(np.abs(seen - wanted).sum() / np.abs(wanted).sum()), 5)


def check(layer: Layer) -> float:
    """One token through an `exact` layer: the distance from what it has to compute."""
    turn, shape = layer.calls % layer.shape.experts, layer.shape
    layer.forward()
    ids = np.frombuffer(layer.ids.memory, np.int64, shape.top_k, 8 * shape.top_k * turn)
    x = from_bf16(np.frombuffer(layer.source.memory, np.uint16, shape.hidden))[None]
    mix = np.frombuffer(layer.mix.memory, np.float32, shape.top_k)
    activations = int8 if layer.whole else lambda rows: rows
    wanted = experts(x, ids[None], mix[None], _matrices(layer), activations, shape.limit)
    seen = from_bf16(np.frombuffer(layer.out.memory, np.uint16, shape.hidden))[None]
    return distance(seen, wanted) if np.isfinite(seen).all() else float("inf")


def _matrices(layer: Layer) -> tuple[Callable[[int], Array], ...]:
    return tuple(_matrix(layer, name) for name in PROJECTIONS)


def _matrix(layer: Layer, name: str) -> Callable[[int], Array]:
    shape = layer.shape
    rows, columns = (shape.intermediate, shape.hidden) if name != "down" else (shape.hidden, shape.intermediate)
    size = rows * columns

    def whole(expert: int) -> Array:
        codes = np.frombuffer(layer.whole[f"{name}_proj"].memory, np.uint16, size, 2 * size * expert)
        return int4(from_bf16(codes).reshape(rows, columns))

    def part(expert: int) -> Array:
        (packed,), (scales,) = layer.parts[f"{name}_projs"], layer.parts[f"{name}_scales"]
        codes = np.frombuffer(packed[expert % len(packed)].memory, np.uint8, size // 2)
        each = np.frombuffer(scales[expert % len(scales)].memory, np.uint16, size // GROUP)
        return mxfp4(codes.reshape(rows, -1), each.reshape(rows, -1))

    return whole if layer.whole else part
