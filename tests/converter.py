"""A stand-in for the upstream converter: the same arguments and the same files, from nothing. Standard library only.

What it does wrong is in the checkpoint's config.json, key "stand_in": "fail", "half", "one_pool" or "slow".
"""

import argparse
import json
import pathlib
import struct
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--input-path", type=pathlib.Path)
parser.add_argument("--input-type", choices=["fp4"])
parser.add_argument("--output", type=pathlib.Path)
parser.add_argument("--quant-method", choices=["int4"])
parser.add_argument("--cpuinfer-threads", type=int)
parser.add_argument("--threadpool-count", type=int)
given = parser.parse_args()
config = json.loads((given.input_path / "config.json").read_text())
how, pools = config.get("stand_in"), given.threadpool_count
if how == "fail":
    sys.exit("OSError: [Errno 28] No space left on device")
if how == "one_pool":
    pools = 1
given.output.mkdir(parents=True)
hidden, rows = config["hidden_size"], config["moe_intermediate_size"] // pools
names = []
for layer in range(config["layers"]):
    header, data = {}, b""
    for pool in range(pools):
        for expert in range(config["experts"]):
            for projection in ("down", "gate", "up"):
                scales = hidden if projection == "down" else rows
                for kind, dtype, count, content in (
                    ("weight", "I8", hidden * rows // 2, b"\1"), ("scale", "F32", scales, struct.pack("<f", 0.5)),
                ):  # fmt: skip
                    key = f"blk.{layer}.ffn_{projection}_exps.{expert}.numa.{pool}.{kind}"
                    begin = len(data)
                    data += content * count
                    header[key] = {"dtype": dtype, "shape": [count], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    name = f"model-{layer + 1:05d}-of-PLACEHOLDER.safetensors"
    (given.output / name).write_bytes(struct.pack("<Q", len(text)) + text + data)
    names.append((name, list(header)))
    print(f"Processing layer {layer}", flush=True)
    if how == "half":
        sys.exit(0)
    if how == "slow":
        time.sleep(config["seconds"])
weight_map = {}
for name, keys in names:
    final = name.replace("PLACEHOLDER", f"{len(names):05d}")
    (given.output / name).rename(given.output / final)
    weight_map.update(dict.fromkeys(keys, final))
(given.output / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
