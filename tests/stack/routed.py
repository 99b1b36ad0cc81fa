"""The overlay's routing in the environment's torch: a line of JSON in, a line of JSON out, until there is no more."""

from __future__ import annotations

import json
import sys

import torch

from ktfleet.runtime import routing

COMPILED = {}


def answer(asked: dict) -> dict:
    weights, ids = torch.tensor(asked["weights"]), torch.tensor(asked["ids"], dtype=torch.int32)
    if asked["what"] == "cull":
        counted = torch.zeros(2, dtype=torch.int64)
        function = routing.cull(ids.shape[1], asked["top_k"], asked["least"], asked["share"])
        seen, kept = function(weights, ids, counted)
        return {"weights": seen.tolist(), "ids": kept.tolist(), "counted": counted.tolist()}
    if asked["what"] == "compiled":
        key = (asked["top_k"], asked["least"], asked["share"])
        both = COMPILED.setdefault(key, (routing.cull(6, *key), routing.compiled(routing.cull(6, *key))))
        with torch.inference_mode():
            runs = [f(weights.clone(), ids.clone(), torch.zeros(2, dtype=torch.int64)) for f in both]
        (shares, kept), (others, same) = runs
        return {"ids": torch.equal(kept, same), "off": float((shares - others).abs().max())}
    now, later = routing.split_deferred(ids.long(), weights, asked["protected"], asked["experts"])
    return {"now": now.tolist(), "later": later.tolist()}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
