"""Takes the place of `sglang.launch_server` where only what looks after it is tested: no experts, no worker pools.

What it is to do besides stands in the variable STAND_IN, as JSON: `says`, lines; `ends`, its last word before it ends;
`silent`, it never generates. Needs Python alone. It proves nothing of sglang or kt-kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from http.server import ThreadingHTTPServer
from typing import Any

from sglang import engine  # type: ignore[import-not-found]  # tests/engine.py, as the wheel has it


class Silent(engine.Handler):  # type: ignore[misc]
    """Healthy, and it never says a word."""

    def _answer(self, asked: dict[str, Any]) -> None:
        super()._answer({**asked, "max_tokens": 0})


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    given, _ = parser.parse_known_args()
    told = json.loads(os.environ.get("STAND_IN", "{}"))
    print("Load weight begin. avail mem=30.21 GB", flush=True)
    print("[NativeMoEWrapper Layer 1] load_experts: 1.0ms, prepare_tensors: 1.0ms", flush=True)
    for line in told.get("says", []):
        print(line, flush=True)
    if "ends" in told:
        sys.exit(told["ends"])
    kind = Silent if told.get("silent") else engine.Handler
    handler = type("Handler", (kind,), {"engine": engine.Engine(rate=1000.0)})
    ThreadingHTTPServer((given.host, given.port), handler).serve_forever()


if __name__ == "__main__":
    main()
