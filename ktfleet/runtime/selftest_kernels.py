"""Do the expert kernels of this CPU do what the overlay relies on? A program of its own: what a kernel dies of, an
illegal instruction say, is then an answer, and its threads are gone afterwards.

`PYTHON -I selftest_kernels.py METHOD [--limit NUMBER]`. Prints one JSON: `wrong` is empty when all holds.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

EXPERTS, WIDTH, KEPT, HIDDEN, INTERMEDIATE, GROUP = 8, 6, 4, 512, 256, 32
TOKENS = (1, 3)
MOST_TOKENS = 32
"""Of one call that a layer has room for: AMXINT4 takes a multiple of 32 alone."""
NEAR = 0.05
"""Relative L2 to the reference: 0.015 was seen for AMXINT4, which has its activations in 8 bits, 0.004 for MXFP4."""
APART = 0.2
"""Relative L2 that the clamp makes here at least; 0.9 was seen."""
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)

Array = Any


def to_bf16(values: Array) -> Array:
    """The codes of the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(codes: Array) -> Array:
    return (codes.astype(np.uint32) << 16).view(np.float32)


class Layer:
    """A few experts whose weights the method holds exactly; keeps the buffers that the kernel reads."""

    def __init__(self, method: str, limit: float) -> None:
        from kt_kernel import kt_kernel_ext as extension
        from kt_kernel.utils import amx

        kernel = amx.AMXInt4_MOE if method == "AMXINT4" else amx._select_mxfp4_backend()
        if kernel is None:
            raise SystemExit("this CPU has no kernel for it")
        pool = extension.WorkerPoolConfig()
        pool.subpool_count, pool.subpool_numa_map, pool.subpool_thread_count = 1, [0], [1]
        self.cpu = extension.CPUInfer(pool)
        self.kept: list[Array] = [np.arange(EXPERTS, dtype=np.int64), np.zeros(EXPERTS, np.uint8)]
        config = extension.moe.MOEConfig(EXPERTS, WIDTH, HIDDEN, INTERMEDIATE, self.kept[1].ctypes.data)
        config.pool, config.max_len, config.layer_idx, config.swiglu_limit = self.cpu.backend_, MOST_TOKENS, 0, limit
        self.weights: list[Array] = []
        random = np.random.default_rng(7)
        for name, shape in (("gate", (INTERMEDIATE, HIDDEN)), ("up", (INTERMEDIATE, HIDDEN)),
                            ("down", (HIDDEN, INTERMEDIATE))):  # fmt: skip
            self._put(config, method, name, random, (EXPERTS, *shape))
        self.moe = kernel(config)
        self._do(self.moe.load_weights_task(self.kept[0].ctypes.data))

    def _put(self, config: Any, method: str, name: str, random: np.random.Generator, shape: tuple[int, ...]) -> None:
        if method == "AMXINT4":
            codes = random.integers(-7, 8, shape)
            codes[..., 0] = 7  # the largest of each row gives its scale
            self.weights.append((codes * 2.0**-5).astype(np.float32))
            buffers = {"proj": to_bf16(self.weights[-1])}
        else:
            codes = random.integers(0, 16, shape).astype(np.uint8)
            scales = np.full((*shape[:-1], shape[-1] // GROUP), 2.0**-4, np.float32)
            values = np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])
            self.weights.append((values * 2.0**-4).astype(np.float32))
            buffers = {"proj": codes[..., 0::2] | codes[..., 1::2] << 4, "scale": to_bf16(scales)}
            config.quant_config.bits, config.quant_config.group_size = 4, GROUP
            config.quant_config.zero_point = False
        for kind, array in buffers.items():
            self.kept.append(np.ascontiguousarray(array))
            setattr(config, f"{name}_{kind}", self.kept[-1].ctypes.data)

    def _do(self, task: Any) -> None:
        self.cpu.submit(task)
        self.cpu.sync()

    def forward(self, x: Array, ids: Array, mix: Array) -> Array:
        """bf16 codes, so that equal is equal to the bit."""
        count, out = np.array([len(x)], np.int32), np.zeros(x.shape, np.uint16)
        arrays = [np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(mix, np.float32), to_bf16(x), out]
        pointers = [each.ctypes.data for each in arrays]
        self._do(self.moe.forward_task(count.ctypes.data, ids.shape[1], *pointers, False))
        return out

    def reference(self, x: Array, ids: Array, mix: Array, limit: float) -> Array:
        """In float32; limit 0: no clamp."""
        gate, up, down = self.weights
        result = np.zeros(x.shape, np.float32)
        for token, row in enumerate(from_bf16(to_bf16(x))):
            for expert, share in zip(ids[token], mix[token], strict=True):
                if expert >= 0:
                    g, u = gate[expert] @ row, up[expert] @ row
                    g, u = (np.minimum(g, limit), np.clip(u, -limit, limit)) if limit else (g, u)
                    # Beyond exp(80) the result is 0 in float32, and exp would overflow.
                    result[token] += share * (down[expert] @ (g / (1 + np.exp(np.minimum(-g, 80))) * u))
        return result


def distance(seen: Array, wanted: Array) -> float:
    """Relative L2."""
    return float(np.linalg.norm(seen - wanted) / np.linalg.norm(wanted))


def inputs(tokens: int, size: float) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(tokens)
    ids = np.array([random.permutation(EXPERTS)[:WIDTH] for _ in range(tokens)])
    x = (random.standard_normal((tokens, HIDDEN)) * size).astype(np.float32)
    return x, ids, (random.random((tokens, WIDTH)) + 0.1).astype(np.float32)


def skipping(layer: Layer, wrong: list[str]) -> None:
    """-1 leaves an expert out, to the bit; and leaving out makes a difference."""
    for tokens in TOKENS:
        x, ids, mix = inputs(tokens, 0.3)
        chosen = np.sort(np.argsort(-mix, axis=1)[:, :KEPT], axis=1)
        culled = np.full_like(ids, -1)
        np.put_along_axis(culled, chosen, np.take_along_axis(ids, chosen, 1), 1)
        seen = layer.forward(x, culled, mix)
        wanted = layer.forward(x, np.take_along_axis(ids, chosen, 1), np.take_along_axis(mix, chosen, 1))
        off = distance(from_bf16(seen), layer.reference(x, culled, mix, 0.0))
        if not np.array_equal(seen, wanted):
            wrong.append(f"{tokens} tokens: an id of -1 is not the same as no such expert")
        if not off <= NEAR:
            wrong.append(f"{tokens} tokens: {off:.3g} off the reference of the kept experts, not {NEAR} at most")
        if np.array_equal(seen, layer.forward(x, ids, mix)):
            wrong.append(f"{tokens} tokens: leaving experts out makes no difference")


def clamping(method: str, limit: float, wrong: list[str]) -> dict[str, float]:
    """The kernel has the clamp when it is told the limit, and only then."""
    with_it, without = Layer(method, limit), Layer(method, 0.0)
    x, ids, mix = inputs(3, limit)
    wanted, free = (with_it.reference(x, ids, mix, each) for each in (limit, 0.0))
    seen, loose = (from_bf16(each.forward(x, ids, mix)) for each in (with_it, without))
    found = {"with": distance(seen, wanted), "without": distance(loose, free), "apart": distance(loose, wanted)}
    for name, right in (("with", found["with"] <= NEAR), ("without", found["without"] <= NEAR),
                        ("apart", found["apart"] >= APART)):  # fmt: skip
        if not right:
            wrong.append(f"clamp {limit:g}: {name} it {found[name]:.3g} off its reference")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", choices=("AMXINT4", "MXFP4"))
    parser.add_argument("--limit", type=float, help="of the clamp, which is tested, too")
    asked = parser.parse_args()
    wrong: list[str] = []
    skipping(Layer(asked.method, 0.0), wrong)
    clamp = clamping(asked.method, asked.limit, wrong) if asked.limit else None
    print("\n" + json.dumps({"method": asked.method, "wrong": wrong, "clamp": clamp}), flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
