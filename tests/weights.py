"""Synthetic weights: what the converter and the hub write, as sparse files or with bytes of their own."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ktfleet.weights.layout import Layout
from ktfleet.weights.safetensors import BITS

SMALL = Layout(layers=2, experts=3, hidden=32, intermediate=16, pools=2)

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def write_safetensors(path: Path, tensors: Tensors, *, sparse: bool = False, **changes: Any) -> None:
    """A file of these tensors (name -> dtype, shape); `changes` replace entries of its header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header.update(changes)
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            file.truncate(8 + len(text) + at)
            return
        for name, (dtype, _) in tensors.items():
            begin, end = header[name]["data_offsets"] if name in header else (0, 0)
            file.write(data(name, dtype, end - begin))


def data(name: str, dtype: str, size: int) -> bytes:
    """Bytes of its own for each tensor; floats are finite."""
    if dtype == "F32":
        return struct.pack("<f", len(name) / 1000 + 0.5) * (size // 4)
    seed = hashlib.sha256(name.encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def write_merged(folder: Path, layout: Layout, *, sparse: bool = False, skip: Iterable[str] = ()) -> Path:
    """Converted weights in the merged layout, with the converter's shard of everything else. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    total = layout.layers + 1
    weight_map = {}
    left_out = set(skip)
    for layer in range(layout.layers):
        tensors = {key: (part.dtype, part.shape) for part, key in layout.named(layer) if key not in left_out}
        if not tensors:
            continue
        name = f"model-{layer + 1:05d}-of-{total:05d}.safetensors"
        write_safetensors(folder / name, tensors, sparse=sparse)
        weight_map.update(dict.fromkeys(tensors, name))
    others = {"embed.weight": ("BF16", (64, layout.hidden)), "blk.0.attn.scale": ("F8_E8M0", (4,))}
    name = f"model-{total:05d}-of-{total:05d}.safetensors"
    write_safetensors(folder / name, others, sparse=sparse)
    write_index(folder, {**weight_map, **dict.fromkeys(others, name)})
    return folder


def write_index(folder: Path, weight_map: Mapping[str, str]) -> None:
    """The index, as the converter and the hub name it."""
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}, indent=2)
    (folder / "model.safetensors.index.json").write_text(text)


def write_kt(folder: Path, layout: Layout) -> Path:
    """Converted weights in the .kt layout. Returns the folder."""
    for layer in range(layout.layers):
        for part, name in layout.filed(layer):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data(name, part.dtype, part.bytes))
    return folder


def write_checkpoint(folder: Path, *, rows: int = 16) -> Path:
    """A small checkpoint as the hub has it, its second file of `rows` x 16 bytes. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensors] = {
        "model-00001-of-00002.safetensors": {"embed.weight": ("BF16", (64, 32))},
        "model-00002-of-00002.safetensors": {"layers.0.ffn.experts.0.w1.weight": ("I8", (rows, 16))},
    }
    for name, held in tensors.items():
        write_safetensors(folder / name, held)
    write_index(folder, {key: name for name, held in tensors.items() for key in held})
    (folder / "config.json").write_text('{"model_type": "small"}\n')
    return folder
