"""A client that nobody here wrote: NVIDIA's aiperf, which counts by usage as we do and shares no line with us."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

LIMIT_S = 600


def inter_token_s(
    python: Path, url: str, tokenizer: Path, folder: Path, prompt: str, tokens: int, requests: int
) -> list[float]:
    """Seconds a token after the first, of each request: one stream at a time, each of exactly so many tokens.

    python: of aiperf's environment. tokenizer: a folder; aiperf wants one, and counts with the server's usage.
    """
    folder.mkdir()
    asked = folder / "prompts.jsonl"
    asked.write_text(json.dumps({"text": prompt}) + "\n")
    fields = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    command = [
        *(python.with_name("aiperf"), "profile", "--model-names", "default", "--url", url),
        *("--endpoint-type", "chat", "--streaming", "--concurrency", "1", "--request-count", str(requests)),
        *("--use-server-token-count", "--per-chunk-usage", "--tokenizer", tokenizer),
        *("--input-file", asked, "--custom-dataset-type", "single_turn", "--allow-dataset-wrap"),
        *(word for name, value in fields.items() for word in ("--extra-inputs", f"{name}:{json.dumps(value)}")),
        # As little as it can do beside the server, which has the same two cores.
        *("--workers-max", "1", "--record-processor-service-count", "1", "--ui-type", "none"),
        *("--no-gpu-telemetry", "--no-server-metrics", "--output-artifact-dir", folder / "told"),
    ]
    surroundings = {**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=surroundings, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    lines = (folder / "told" / "profile_export.jsonl").read_text().splitlines()
    told = [{name: each["value"] for name, each in json.loads(line)["metrics"].items()} for line in lines]
    assert [each["usage_completion_tokens"] for each in told] == [tokens] * requests
    return [each["inter_token_latency"] / 1000 for each in told]
