"""Run kt-kernel's expert kernels on small synthetic experts and compare with references; print one line of JSON.

`PYTHON expert_kernel.py FOLDER [--variant NAME]`, where FOLDER holds kt_kernel/ and kt_kernel.libs/ of the wheel for
this Python. An extension is loaded by its name: `import kt_kernel` takes the best one that the CPU has, which is
another one than the workstation's. The extensions need neither torch nor a GPU; the references are computed by torch
where there is one, else by numpy. Each kernel runs in a process of its own: a wrong instruction ends only that.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

try:
    import torch
except ImportError:
    torch = None

EXPERTS, TOP_K, HIDDEN, INTERMEDIATE = 8, 3, 512, 256
GROUP = 32
"""Weights that share a scale in MXFP4."""
TOKENS = (1, 64)
"""Up to 4 x EXPERTS / TOP_K tokens are multiplied as vectors, more of them as a matrix: another kernel."""
FLAGS = {"avx2": {"avx2", "fma"}, "avx512_base": {"avx512f", "avx512bw"}}
"""What /proc/cpuinfo has to name for a variant, as kt_kernel/_cpu_detect.py has it."""
KERNELS = {"avx2": ("AVX2MXFP4_MOE",), "avx512_base": ("AMXInt4_MOE", "AMXFP4_KGroup_MOE", "AVX2MXFP4_MOE")}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""The magnitudes of a 4-bit float; the highest bit of its code is the sign."""


def to_bf16(values: np.ndarray) -> np.ndarray:
    """The codes of the nearest bf16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(np.uint32) << 16).view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    return from_bf16(to_bf16(values))


def int4(weights: np.ndarray) -> np.ndarray:
    """AMXINT4: one scale a row, to 8 bits first, then to -7..7 in steps of 16, halves away from zero."""
    scale = np.abs(weights).max(-1, keepdims=True) / np.float32(112)
    eight = np.rint(weights / scale)
    return np.sign(eight) * np.floor((np.abs(eight) + 8) / 16) * 16 * scale


def int8(rows: np.ndarray) -> np.ndarray:
    """AMXINT4's activations: one scale a token."""
    scale = np.abs(rows).max(-1, keepdims=True) / np.float32(127)
    return np.rint(rows / np.where(scale, scale, 1)) * scale


def mxfp4(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Packed codes (low nibble first), scales as bf16 codes, and what the two stand for."""
    groups = weights.reshape(*weights.shape[:-1], -1, GROUP)
    scales = 2.0 ** np.ceil(np.log2(np.abs(groups).max(-1, keepdims=True) / 6))
    codes = np.abs(np.abs(groups / scales)[..., None] - E2M1).argmin(-1)
    means = (E2M1[codes] * np.sign(groups) * scales).reshape(weights.shape).astype(np.float32)
    signed = (codes | (groups < 0) << 3).astype(np.uint8).reshape(weights.shape)
    return signed[..., 0::2] | signed[..., 1::2] << 4, to_bf16(scales[..., 0]), means


def times(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """rows x weights^T in float32."""
    if torch is None:
        return rows @ weights.T
    return torch.nn.functional.linear(torch.from_numpy(rows), torch.from_numpy(weights)).numpy()


def experts(x, ids, mix, weights, activations=lambda rows: rows):
    """The reference: SwiGLU experts, mixed; what a kernel keeps as bf16 is bf16 here."""
    gate, up, down = weights
    result = np.zeros_like(x)
    for token, row in enumerate(x):
        for expert, share in zip(ids[token], mix[token], strict=True):
            inner = activations(row[None].astype(np.float32))
            g, u = (rounded(times(inner, w[expert].astype(np.float32))) for w in (gate, up))
            hidden = activations(rounded(g / (1 + np.exp(-g)) * u))
            result[token] += share * rounded(times(hidden, down[expert].astype(np.float32)))[0]
    return rounded(result)


def load(folder: Path, variant: str):
    """One extension of the wheel, by its name."""
    (path,) = (folder / "kt_kernel").glob(f"_kt_kernel_ext_{variant}.*.so")
    spec = importlib.util.spec_from_file_location("kt_kernel_ext", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Layer:
    """Experts in one kernel; holds the buffers that the kernel reads."""

    def __init__(self, extension, kernel: str, weights: list[np.ndarray]) -> None:
        pool = extension.WorkerPoolConfig()
        pool.subpool_count, pool.subpool_numa_map, pool.subpool_thread_count = 1, [0], [1]
        self.cpu = extension.CPUInfer(pool)
        self.order = np.arange(EXPERTS, dtype=np.int64)
        self.nowhere_else = np.zeros(EXPERTS, np.uint8)
        config = extension.moe.MOEConfig(EXPERTS, TOP_K, HIDDEN, INTERMEDIATE, self.nowhere_else.ctypes.data)
        config.pool, config.max_len, config.layer_idx = self.cpu.backend_, max(TOKENS), 0
        self.buffers = []
        if "FP4" in kernel:
            config.quant_config.bits, config.quant_config.group_size = 4, GROUP
            config.quant_config.zero_point = False
            packed = [mxfp4(w) for w in weights]
            self.put(config, "scale", [each[1] for each in packed])
            self.put(config, "proj", [each[0] for each in packed])
            self.reference = [each[2] for each in packed], lambda rows: rows
        else:
            self.put(config, "proj", [to_bf16(w) for w in weights])
            self.reference = [int4(w) for w in weights], int8
        self.moe = getattr(extension.moe, kernel)(config)
        self.do(self.moe.load_weights_task(self.order.ctypes.data))

    def put(self, config, what: str, arrays: list[np.ndarray]) -> None:
        for name, array in zip(("gate", "up", "down"), map(np.ascontiguousarray, arrays), strict=True):
            self.buffers.append(array)
            setattr(config, f"{name}_{what}", array.ctypes.data)

    def do(self, task) -> None:
        self.cpu.submit(task)
        self.cpu.sync()

    def forward(self, x: np.ndarray, ids: np.ndarray, mix: np.ndarray) -> np.ndarray:
        count, source, out = np.array([len(x)], np.int32), to_bf16(x), np.zeros(x.shape, np.uint16)
        pointers = [each.ctypes.data for each in (ids, mix, source, out)]
        self.do(self.moe.forward_task(count.ctypes.data, TOP_K, *pointers, False))
        return from_bf16(out)


def distance(seen: np.ndarray, wanted: np.ndarray) -> float:
    """Relative L1."""
    return round(float(np.abs(seen - wanted).sum() / np.abs(wanted).sum()), 5)


def measure(folder: Path, variant: str, kernel: str) -> dict[str, object]:
    random = np.random.default_rng(7)
    shapes = [(EXPERTS, INTERMEDIATE, HIDDEN)] * 2 + [(EXPERTS, HIDDEN, INTERMEDIATE)]
    weights = [rounded(random.standard_normal(shape, np.float32) / 16) for shape in shapes]
    extension = load(folder, variant)
    layer = Layer(extension, kernel, weights)
    runs = []
    for tokens in TOKENS:
        x = rounded(random.standard_normal((tokens, HIDDEN), np.float32))
        ids = np.array([random.permutation(EXPERTS)[:TOP_K] for _ in range(tokens)], np.int64)
        mix = random.random((tokens, TOP_K), np.float32)
        seen = layer.forward(x, ids, mix)
        runs.append({
            "tokens": tokens,
            "finite": bool(np.isfinite(seen).all()),
            "from_bf16": distance(seen, experts(x, ids, mix, weights)),
            "from_quantised": distance(seen, experts(x, ids, mix, *layer.reference)),
        })  # fmt: skip
    return {"variant": extension.__cpu_variant__, "kernel": kernel, "runs": runs,
            "reference": "torch" if torch else "numpy"}  # fmt: skip


def apart(folder: Path, variant: str, kernel: str) -> dict[str, object]:
    """`measure` in a process of its own. The kernels print to the standard output, too."""
    command = [sys.executable, __file__, str(folder), "--variant", variant, "--kernel", kernel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"variant": variant, "kernel": kernel, "exit": done.returncode, "said": done.stderr[-1000:]}
    return json.loads(lines[-1])


def cpu() -> dict[str, str]:
    """The first CPU's lines of /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variant", choices=FLAGS, help="only this one")
    parser.add_argument("--kernel", help="only this one, in this process")
    asked = parser.parse_args()
    if asked.kernel:
        print("\n" + json.dumps(measure(asked.folder, asked.variant, asked.kernel)), flush=True)
        return
    here = cpu()
    flags = set(here["flags"].split())
    variants = [name for name in FLAGS if asked.variant in (None, name)]
    results = [apart(asked.folder, name, kernel) for name in variants if FLAGS[name] <= flags
               for kernel in KERNELS[name]]  # fmt: skip
    lacking = {name: sorted(FLAGS[name] - flags) for name in variants if not FLAGS[name] <= flags}
    print(json.dumps({"cpu": here["model name"], "model": here.get("model"), "python": sys.version.split()[0],
                      "lacking": lacking, "results": results}))  # fmt: skip


if __name__ == "__main__":
    main()
