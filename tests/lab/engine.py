"""Takes the place of `sglang.launch_server` in the lab, where there is no card: the real worker pools, no model.

It reads the rendered command line as the real parser would, holds as many experts as the model's config.json says in
kt-kernel's own pools, prints what both print, and answers at a set rate: tests/engine.py. Which words it says has
nothing to do with the experts, and its rate none with the CPUs: it proves nothing of sglang's code or of any speed.

What it is to do besides stands in the variable LAB_ENGINE, as JSON: fields of tests/engine.py's Engine, and those of
Told. It runs from a wheel (tests/servers.py), with Debian 12's Python and nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sglang import engine, expert_layer, flags  # type: ignore[import-not-found]  # the wheel has copies of them

HERE = Path(__file__).parent
VARIABLE = "LAB_ENGINE"
TRIAL = 3
"""Tokens that each layer computes before it is served: the workers have run, each where it is."""


@dataclass(frozen=True)
class Told:
    """How it misbehaves.

    layer_s: seconds that each layer takes besides. lines: more of its log. ends: its last word, instead of serving.
    silent: it is healthy and never generates. crash_over: tokens of an answer that it dies of. main_on_worker: its main
    thread goes where a worker is.
    """

    layer_s: float = 0.0
    lines: tuple[str, ...] = ()
    ends: str = ""
    silent: bool = False
    crash_over: int = 1 << 30
    main_on_worker: bool = False


class Handler(engine.Handler):  # type: ignore[misc]
    """One connection."""

    told: Told

    def _answer(self, asked: dict[str, Any]) -> None:
        super()._answer({**asked, "max_tokens": 0} if self.told.silent else asked)

    def _event(self, prompt: int, tokens: int | None, finish: str | None = None, **delta: Any) -> None:
        if tokens and tokens > self.told.crash_over:
            os.kill(os.getpid(), signal.SIGSEGV)
        super()._event(prompt, tokens, finish, **delta)


def main() -> None:
    """Until a signal."""
    given = flags.Parser().parse_args()
    asked = json.loads(os.environ.get(VARIABLE, "{}"))
    own = {field.name for field in fields(Told)}
    told = Told(**{name: value for name, value in asked.items() if name in own})
    how = engine.Engine(
        model=given.served_model_name, **{name: value for name, value in asked.items() if name not in own}
    )
    say("Load weight begin. avail mem=30.21 GB")
    held = hold(given, json.loads(Path(given.model_path, "config.json").read_text(encoding="utf-8")), told)
    for line in told.lines:
        say(line)
    if told.ends:
        sys.exit(told.ends)
    handler = type("Told", (Handler,), {"engine": how, "told": told})
    server = ThreadingHTTPServer((given.host, given.port), handler)
    threading.Thread(target=server.serve_forever).start()
    say("The server is fired up and ready to roll!")
    if told.main_on_worker:
        os.sched_setaffinity(0, next(iter(expert_layer.workers_of(held[0].pools).values())))
    while True:
        time.sleep(3600)


def hold(given: argparse.Namespace, model: Mapping[str, Any], told: Told) -> list[Any]:
    """The experts of all layers in the pools that the flags ask for, as kt_kernel 0.7.2 divides the workers."""
    count, nodes = given.kt_threadpool_count, given.kt_numa_nodes
    if nodes != list(range(count)):
        sys.exit(f"RuntimeError: it makes pools on the nodes of their own numbers alone, not on {nodes}")
    workers = [given.kt_cpuinfer // count + (n < given.kt_cpuinfer % count) for n in range(count)]
    extension = expert_layer.load(HERE.parent)
    pools = expert_layer.Pools(extension, workers)
    shape = expert_layer.Shape(
        model["n_routed_experts"],
        model["num_experts_per_tok"],
        model["hidden_size"],
        model["moe_intermediate_size"],
        model.get("swiglu_limit", 0.0),
    )
    held = []
    for number in range(model["num_hidden_layers"]):
        began = time.perf_counter()
        layer = expert_layer.Layer(extension, pools, given.kt_method, shape)
        layer.microseconds(0, TRIAL)
        if not expert_layer.finite(layer.out.memory[:]):
            sys.exit("RuntimeError: an expert's result is no number")
        held.append(layer)
        time.sleep(told.layer_s)
        took = (time.perf_counter() - began) * 1000
        say(f"[NativeMoEWrapper Layer {number}] load_experts: {took:.1f}ms, prepare_tensors: 0.0ms")
    say(f"Load weight end. kt-kernel's {extension.__cpu_variant__}, {held[0].kernel}")
    return held


def say(line: str) -> None:
    """At once: the journal shows how far it is."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
