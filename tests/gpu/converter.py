"""Runs the real converter on a small checkpoint in the model's format, through ktfleet's own program, and verifies it.

    python tests/gpu/converter.py CONVERTER >converter.json

CONVERTER: the upstream file convert_cpu_weights_ds4.py at the commit that ktfleet/sources.py pins. Run it
from a checkout, with a Python that has kt_kernel, torch and safetensors, say /opt/ktfleet/stack/bin/python, on a CPU
with AVX-512. Prints one JSON: what both programs said, and every tensor's file, type and shape, for 1 and 2 pools.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ktfleet.weights.job import Converter, Copy, Job  # noqa: E402  # from the checkout
from ktfleet.weights.layout import Layout  # noqa: E402

SIZES = {"layers": 2, "experts": 8, "hidden": 512, "intermediate": 512}
GROUP = 32  # values that share a scale
PROGRAM = "import sys; from ktfleet.weights.program import main; sys.exit(main(sys.argv[1:]))"
LIMIT_S = 240


def write_checkpoint(folder: Path) -> None:
    """Random MXFP4 experts under the names of the model's checkpoint, and one tensor of something else a layer."""
    torch.manual_seed(1)
    folder.mkdir(parents=True)
    weight_map = {}
    for layer in range(SIZES["layers"]):
        tensors = {f"layers.{layer}.attn.wq.weight": torch.zeros(8, 8, dtype=torch.bfloat16)}
        for expert in range(SIZES["experts"]):
            for name in ("w1", "w2", "w3"):
                tensors.update(projection(f"layers.{layer}.ffn.experts.{expert}.{name}", down=name == "w2"))
        shard = f"model-{layer + 1:05d}-of-{SIZES['layers']:05d}.safetensors"
        save_file(tensors, folder / shard)
        weight_map.update(dict.fromkeys(tensors, shard))
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {
        "model_type": "deepseek_v4",
        "expert_dtype": "fp4",
        "n_routed_experts": SIZES["experts"],
        "num_experts_per_tok": 6,
        "hidden_size": SIZES["hidden"],
        "moe_intermediate_size": SIZES["intermediate"],
        "num_hidden_layers": SIZES["layers"],
    }
    (folder / "config.json").write_text(json.dumps(config))


def projection(key: str, *, down: bool) -> dict[str, torch.Tensor]:
    """Two 4-bit values a byte, and a power of two for each group of a row."""
    rows, columns = SIZES["intermediate"], SIZES["hidden"]
    if down:
        rows, columns = columns, rows
    values = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    exponents = torch.randint(118, 124, (rows, columns // GROUP), dtype=torch.uint8)
    return {f"{key}.weight": values.view(torch.int8), f"{key}.scale": exponents.view(torch.float8_e8m0fnu)}


def write_job(base: Path, sha256: str, pools: int) -> tuple[Path, Job]:
    """What the host's program is told."""
    layout = Layout(**SIZES, pools=pools)
    job = Job(
        repository="none/small",
        revision="0" * 40,
        checkpoint=str(base / "small/checkpoint"),
        checkpoint_bytes=1,
        index_sha256=None,
        source=Copy(str(base / "nowhere"), None),
        shards=str(base / f"small/AMXINT4-p{pools}"),
        shards_bytes=layout.total_bytes,
        layout=layout,
        converter=Converter("file:///nowhere", "0" * 40, "converter.py", sha256, sys.executable, 4, "fp4"),
    )
    path = base / f"job{pools}.json"
    path.write_text(job.to_json())
    return path, job


def run(base: Path, *arguments: str) -> dict[str, Any]:
    """One call of the program on the host."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    state = {"STATE_DIRECTORY": str(base), "KT_KERNEL_CPU_VARIANT": "avx512_base", "PYTHONPATH": path}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    environment = {**os.environ, **state}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    return {"exit": done.returncode, "stdout": done.stdout[-2000:], "stderr": done.stderr[-2000:]}


def tensors_of(folder: Path) -> dict[str, list[Any]]:
    """Name -> file, type, shape."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for key in sorted(file.keys()):
                tensor = file.get_slice(key)
                found[key] = [path.name, tensor.get_dtype(), tensor.get_shape()]
    return found


def main(converter: Path) -> None:
    """See above."""
    text = converter.read_bytes()
    sha256 = hashlib.sha256(text).hexdigest()
    said: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__, "converter": sha256}
    said |= {"sizes": SIZES, "pools": {}}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / f"{sha256}.py").write_bytes(text)  # so nothing is fetched
        write_checkpoint(base / "small/checkpoint")
        for pools in (1, 2):
            path, job = write_job(base, sha256, pools)
            converted, verified = run(base, "convert", str(path)), run(base, "verify", "--deep", str(path))
            tensors = tensors_of(Path(job.shards or ""))
            said["pools"][pools] = {"convert": converted, "verify": verified, "tensors": tensors}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
