"""One layer of routed experts on kt-kernel's own extension, without torch: worker pools, weights, one token through it.

Only the standard library and the kt-kernel wheel: it runs on the host, with the Python that the wheel is made for.
What the extension prints goes to the standard output: call it in a process of its own (apart.py).
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import math
import mmap
import os
import random
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUP = 32
"""Weights that share a scale in MXFP4."""
KERNELS = {"AMXINT4": ("AMXInt4_MOE",), "MXFP4": ("AMXFP4_KGroup_MOE", "AVX2MXFP4_MOE")}
"""kt-kernel's method -> its classes in the order in which kt_kernel 0.7.2 takes the first that is compiled in."""
MOST_TOKENS = 32
"""Of one call that a layer has room for: AMXINT4 takes a multiple of 32 alone."""
PROJECTIONS = ("gate", "up", "down")
BINDING = {"HWLOC_COMPONENTS": "-x86"}
"""Variables with which pools have to start. kt-kernel binds a pool's first worker while that thread reads the topology
(0.7.2), for which hwloc's x86 component moves it over all CPUs and then puts back what was before: on a busy machine
with two CPUs 22 of 400 starts left it unpinned, and none of 400 without that component, 2026-12-02. What it would add
is in sysfs, too."""
DISTINCT = 4
"""Experts that differ; the others hold the same numbers in memory of their own."""


@dataclass(frozen=True)
class Shape:
    """A layer. limit: the model's SwiGLU limit, 0: none."""

    experts: int
    top_k: int
    hidden: int
    intermediate: int
    limit: float = 0.0


class Buffer:
    """Memory that the extension reads or writes: page-aligned, kept as long as this object."""

    def __init__(self, data: bytes | bytearray | int) -> None:
        size = data if isinstance(data, int) else len(data)
        self.memory = mmap.mmap(-1, max(size, 1))
        if not isinstance(data, int):
            self.memory[:size] = bytes(data)
        self._first = ctypes.c_char.from_buffer(self.memory)
        self.address = ctypes.addressof(self._first)


def load(folder: Path, variant: str = "") -> Any:
    """The extension in `folder` (which holds kt_kernel/ and kt_kernel.libs/); "": the one kt-kernel takes on this CPU.

    Raises ImportError.
    """
    os.environ.update(BINDING)
    if not variant:
        # A variable of a shell's must not choose: it would be another kernel than the server's.
        os.environ.pop("KT_KERNEL_CPU_VARIANT", None)
        extension, _ = _module("_cpu_detect", folder / "kt_kernel" / "_cpu_detect.py").initialize()
        return extension
    found = sorted((folder / "kt_kernel").glob(f"_kt_kernel_ext_{variant}.*.so"))
    if not found:
        raise ImportError(f"no extension {variant} in {folder / 'kt_kernel'}")
    return _module("kt_kernel_ext", found[0])


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"no {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernel(extension: Any, method: str) -> str:
    """The class of a method in this extension. Raises ValueError."""
    for name in KERNELS.get(method, ()):
        if hasattr(extension.moe, name):
            return name
    raise ValueError(f"{extension.__cpu_variant__} of kt-kernel has no kernel that is measured for {method}")


class Pools:
    """One worker pool a NUMA node: `workers` of each, in the nodes' order. They bind themselves."""

    def __init__(self, extension: Any, workers: Sequence[int]) -> None:
        wanted = extension.WorkerPoolConfig()
        wanted.subpool_count = len(workers)
        wanted.subpool_numa_map = list(range(len(workers)))
        wanted.subpool_thread_count = list(workers)
        self.workers = tuple(workers)
        before = threads()
        self.infer = extension.CPUInfer(wanted)
        self.threads = {thread: name for thread, name in threads().items() if thread not in before}

    def do(self, task: Any) -> None:
        """Submit a task and wait for its end."""
        self.infer.submit(task)
        self.infer.sync()


class Layer:
    """Experts with random weights, in one kernel. `exact`: weights for which it has to compute the right result."""

    def __init__(
        self, extension: Any, pools: Pools, method: str, shape: Shape, exact: bool = False, seed: int = 7
    ) -> None:
        self.pools, self.shape, self.method = pools, shape, method
        self.kernel = kernel(extension, method)
        self.nowhere_else = Buffer(shape.experts)
        self.order = Buffer(struct.pack(f"{shape.experts}q", *range(shape.experts)))
        config = extension.moe.MOEConfig(
            shape.experts, shape.top_k, shape.hidden, shape.intermediate, self.nowhere_else.address
        )
        config.pool, config.max_len, config.layer_idx = pools.infer.backend_, MOST_TOKENS, 0
        config.swiglu_limit = shape.limit
        dice = random.Random(seed)
        self.whole = whole(shape, dice) if exact and method == "AMXINT4" else {}
        for name, matrix in self.whole.items():
            setattr(config, name, matrix.address)
        self.parts = {} if self.whole else parts(method, shape, len(pools.workers), dice)
        for name, of_pools in self.parts.items():
            pointers = [[each[e % len(each)].address for e in range(shape.experts)] for each in of_pools]
            setattr(config, name, pointers)
        if method == "MXFP4":
            config.quant_config.bits, config.quant_config.group_size = 4, GROUP
            config.quant_config.zero_point = False
        self.moe = getattr(extension.moe, self.kernel)(config)
        pools.do(self.moe.load_weights_task(self.order.address))
        self._token(dice)

    def _token(self, dice: random.Random) -> None:
        """A token's activations."""
        shape = self.shape
        self.turns = dice.sample(range(shape.experts), shape.experts)
        self.keep(shape.top_k)
        self.mix = Buffer(struct.pack(f"{shape.top_k}f", *(1 / shape.top_k for _ in range(shape.top_k))))
        self.count = Buffer(struct.pack("i", 1))
        self.source = Buffer(bf16(dice.gauss(0, 1) for _ in range(shape.hidden)))
        self.out = Buffer(2 * shape.hidden)

    def keep(self, kept: int) -> None:
        """From now on a call computes so many, -1 stands for the rest; all experts come before one comes again."""
        turns, absent = itertools.cycle(self.turns), [-1] * (self.shape.top_k - kept)
        rows = ([*itertools.islice(turns, kept), *absent] for _ in range(self.shape.experts))
        self.ids = Buffer(b"".join(struct.pack(f"{self.shape.top_k}q", *row) for row in rows))
        self.calls = 0

    def forward(self) -> None:
        """One token through the next top_k experts; the result is in `out`, as bf16."""
        turn = self.calls % self.shape.experts
        self.calls += 1
        ids = self.ids.address + 8 * self.shape.top_k * turn
        pointers = (ids, self.mix.address, self.source.address, self.out.address)
        self.pools.do(self.moe.forward_task(self.count.address, self.shape.top_k, *pointers, False))

    def microseconds(self, seconds: float, calls: int = 3) -> float:
        """A call's, over at least so many seconds and calls."""
        began, done = time.perf_counter(), 0
        while done < calls or time.perf_counter() - began < seconds:
            self.forward()
            done += 1
        return (time.perf_counter() - began) / done * 1e6


def whole(shape: Shape, dice: random.Random) -> dict[str, Buffer]:
    """bf16 matrices of all experts, which the kernel quantises itself: field of MOEConfig -> matrix."""
    size = shape.experts * shape.hidden * shape.intermediate
    # The high byte is the sign and most of the exponent: magnitudes from 2^-7 to 2^-3.
    high = bytes(0x3C | (byte & 0x81) for byte in range(256))
    made = {}
    for name in PROJECTIONS:
        codes = bytearray(2 * size)
        codes[0::2], codes[1::2] = dice.randbytes(size), dice.randbytes(size).translate(high)
        made[f"{name}_proj"] = Buffer(codes)
    return made


def parts(method: str, shape: Shape, pools: int, dice: random.Random) -> dict[str, list[list[Buffer]]]:
    """What MOEConfig's other fields point to: field -> for each pool -> its part of each expert that differs.

    MXFP4's classes divide whole experts themselves. AMXINT4's take the parts of converted weights, whose layout
    random bytes have as well as any others: they are good for times, not for results.
    """
    rows, columns = shape.intermediate, shape.hidden
    if method == "MXFP4":
        shares, scales, size = 1, _mxfp4_scales, rows * columns // 2
        counts = dict.fromkeys(PROJECTIONS, rows * columns // GROUP)
    else:
        shares, scales, size = pools, _int4_scales, rows * columns // 2 // pools
        counts = {"gate": rows // pools, "up": rows // pools, "down": columns}
    made = {}
    for name, count in counts.items():
        made[f"{name}_projs"] = [[Buffer(dice.randbytes(size)) for _ in range(DISTINCT)] for _ in range(shares)]
        made[f"{name}_scales"] = [[Buffer(scales(count, dice)) for _ in range(DISTINCT)] for _ in range(shares)]
    return made


def _mxfp4_scales(count: int, dice: random.Random) -> bytes:
    """Powers of two as bf16, a pattern again and again: 2^-8 to 2^-5."""
    pattern = struct.pack("64H", *(((127 - dice.randint(5, 8)) << 7) for _ in range(64)))
    return (pattern * math.ceil(count / 64))[: 2 * count]


def _int4_scales(count: int, dice: random.Random) -> bytes:
    """As rows of weights about 1/16 have them."""
    pattern = struct.pack("64f", *(dice.uniform(0.001, 0.003) for _ in range(64)))
    return (pattern * math.ceil(count / 64))[: 4 * count]


def bf16(values: Iterable[float]) -> bytes:
    """Codes of bf16, cut."""
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def finite(codes: bytes) -> bool:
    """No bf16 of them is infinite or no number."""
    return all(code & 0x7F80 != 0x7F80 for (code,) in struct.iter_unpack("<H", codes))


def threads() -> dict[int, str]:
    """This process's threads by their names."""
    found = {}
    for entry in Path("/proc/self/task").iterdir():
        try:
            found[int(entry.name)] = (entry / "comm").read_text(encoding="utf-8").strip()
        except OSError:
            continue  # it has ended
    return found


def pin_others(cpus: Iterable[int]) -> None:
    """Let every thread of this process but the workers run on these CPUs alone."""
    allowed = set(cpus)
    for thread, name in threads().items():
        if not name.startswith("numa_"):
            os.sched_setaffinity(thread, allowed)


def workers_of(pools: Pools) -> dict[str, list[int]]:
    """The CPUs that each worker of these pools may run on, by its name."""
    workers = {name: thread for thread, name in pools.threads.items() if name.startswith("numa_")}
    return {name: sorted(os.sched_getaffinity(thread)) for name, thread in sorted(workers.items())}
