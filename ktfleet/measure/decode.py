"""The decode rate of a running server: readiness, warm-up, repeats of prose and code, long contexts, several streams.

It decides nothing: each run is told as it was, `judge/decode/` judges. Every run goes to its end: a server decodes on
for seconds after a client has left. Only the standard library: it runs on the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from ktfleet.measure import prompts
from ktfleet.measure.ask import Server, complete
from ktfleet.measure.serving import connect, in_flight, wait_until_ready, watched
from ktfleet.measure.stream import Limits, Reading

SCHEMA = 1
SAMPLE_WORDS = 200
"""Of the prompt from which the tokens a word are learned."""
QUIET_S = 45.0
"""sglang's count of running requests may be this old when it idles."""


@dataclass(frozen=True)
class Order:
    """What to measure. Times in seconds, lengths in tokens.

    tokens: the length of each answer. ladder: lengths of prompts. probe: of the long prompt that has hung servers
    (0: none), which may take probe_s. streams: how many at once. extra: further fields of every request.
    """

    url: str
    model: str | None = None
    key_file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    ready_s: float = 600.0
    tokens: int = 256
    repeats: int = 5
    ladder: tuple[int, ...] = (1024, 8192, 16384)
    ladder_tokens: int = 64
    streams: tuple[int, ...] = (2, 4)
    probe: int = 0
    probe_s: float = 300.0
    idle_s: float = 60.0
    first_s: float = 300.0


def measure(order: Order) -> dict[str, Any]:
    """The whole protocol; it ends early at the first answer that is an error."""
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "runs": [], "ladder": [], "streams": []}
    try:
        server = connect(order.url, order.model, order.key_file, order.extra)
    except OSError as error:
        return {**record, "ready": {"ready": False, "waited_s": 0.0, "why": f"{order.key_file}: {error.strerror}"}}
    record["model"] = server.model
    record["ready"] = wait_until_ready(server, order.ready_s)
    if record["ready"]["ready"]:
        record["in_flight_before"] = _quiet(server)
        for part, run in _protocol(server, order, record):
            record[part].append(run)
            if run["verdict"] == "error":
                record["stopped"] = f"{part}: {run['reason']}"
                break
        else:
            record["probe"] = _probe(server, order, record["tokens_per_word"]) if order.probe else None
    return record


def _quiet(server: Server) -> int | None:
    """Requests in flight that are not ours, after some patience."""
    began = time.monotonic()
    while (seen := in_flight(server)) and time.monotonic() - began < QUIET_S:
        time.sleep(1.0)
    return seen


def _protocol(server: Server, order: Order, record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    asked = {"prose": prompts.PROSE, "code": prompts.CODE}
    record["warm_up"] = []
    for name, prompt in asked.items():
        warm = _run(server, order, name, prompt, order.tokens)
        record["warm_up"].append(warm)
        if warm["verdict"] == "error":
            yield "runs", warm
            return
    # Prose and code in turns: what drifts (heat) meets both.
    for _ in range(order.repeats):
        for name, prompt in asked.items():
            yield "runs", _run(server, order, name, prompt, order.tokens)
    if order.ladder or order.probe:
        sample = _run(server, order, "sample", prompts.long(SAMPLE_WORDS, 0), 1)
        per_word = (sample["prompt_tokens"] or SAMPLE_WORDS) / SAMPLE_WORDS
        record["tokens_per_word"] = per_word
        for rung in order.ladder:
            prompt = prompts.long(int(rung / per_word), rung)
            yield "ladder", {**_run(server, order, f"context {rung}", prompt, order.ladder_tokens), "wanted": rung}
    for count in order.streams:
        yield "streams", _together(server, order, count)


def _limits(order: Order) -> Limits:
    return Limits(order.first_s, order.idle_s, order.first_s + order.tokens * 2.0)


def _run(server: Server, order: Order, name: str, prompt: str, tokens: int) -> dict[str, Any]:
    with watched(server, own=1) as watch:
        seen = complete(server, prompt, tokens, _limits(order), ignore_eos=True)
    return {"prompt": name, "foreign": watch.foreign, **seen.numbers()}


def _together(server: Server, order: Order, count: int) -> dict[str, Any]:
    """Several streams at once: each with a prompt of its own, and what they have together."""
    asked = [f"{prompts.PROSE} Part {number}." for number in range(count)]
    with watched(server, own=count) as watch, ThreadPoolExecutor(count) as pool:
        began = time.monotonic()

        def one(prompt: str) -> Reading:
            return complete(server, prompt, order.tokens, _limits(order), ignore_eos=True)

        seen = list(pool.map(one, asked))
        took = time.monotonic() - began
    bad = next((one for one in seen if one.verdict != "ok"), None)
    return {
        "count": count,
        "foreign": watch.foreign,
        "verdict": bad.verdict if bad else "ok",
        "reason": bad.reason if bad else "",
        "together_tok_s": sum(one.tokens or 0 for one in seen) / took if took > 0 else None,
        "runs": [one.numbers() for one in seen],
    }


def _probe(server: Server, order: Order, per_word: float) -> dict[str, Any]:
    """One long prompt with a limit, last of all: where it hangs, the server does not come back."""
    limits = Limits(order.probe_s, order.idle_s, order.probe_s + order.idle_s)
    seen = complete(server, prompts.long(int(order.probe / per_word), order.probe + 1), 8, limits, ignore_eos=True)
    return {"prompt": "probe", "wanted": order.probe, **seen.numbers()}
