"""Our rate beside that of the real sglang-kt server, on a CPU, which counts its tokens and times them itself.

And beside that of an independent client.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from ktfleet.measure.ask import Limits, Server, complete, page
from tests.stack import independent, sglang_on_cpu
from tests.stack.sglang_on_cpu import Running

pytestmark = pytest.mark.stack

INTERVAL = 8
PROMPT, TOKENS = "Write some prose.", 129


EACH = pytest.param(1, marks=pytest.mark.long)


@pytest.fixture(scope="module", params=[EACH, INTERVAL], ids=lambda tokens: f"every {tokens}")
def running(
    request: pytest.FixtureRequest, stack_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sglang")
    with sglang_on_cpu.serving(stack_python, folder, request.param) as made:
        complete(made.server, "warm up", 16)
        yield made


def decoding_s(server: Server) -> float:
    """Seconds that the server has spent on all tokens but the first of each answer, by its own clock."""
    text = page(server, "/metrics").text

    def total(name: str) -> float:
        return sum(map(float, re.findall(rf"^sglang:{name}_sum{{.*}} (\S+)$", text, re.MULTILINE)))

    return total("e2e_request_latency_seconds") - total("time_to_first_token_seconds")


def ours(server: Server) -> float:
    """Our rate of one stream, in parts of the server's own."""
    before = decoding_s(server)
    seen = complete(server, PROMPT, TOKENS, ignore_eos=True)
    assert (seen.verdict, seen.tokens, seen.finish, seen.approximate) == ("ok", TOKENS, "length", False)
    assert seen.decode_tok_s
    return seen.decode_tok_s * (_told(server) - before) / (TOKENS - 1)


def theirs(running: Running, aiperf: Path, folder: Path) -> float:
    """aiperf's rate of a few such streams, in parts of the server's own."""
    before, url = decoding_s(running.server), running.server.url
    seen = independent.inter_token_s(aiperf, url, running.model, folder, PROMPT, TOKENS, 3)
    return (_told(running.server) - before) / (TOKENS - 1) / sum(seen)


def _told(server: Server) -> float:
    time.sleep(0.2)  # it counts when it has told the end
    return decoding_s(server)


def test_our_rate_is_the_servers_own_within_2_percent(running: Running) -> None:
    """The median of seven: another process on this machine may take the core away between the two clocks."""
    ratios = [ours(running.server) for _ in range(7)]
    assert 0.98 <= median(ratios) <= 1.02, ratios


@pytest.mark.long
def test_our_rate_is_that_of_aiperf_within_2_percent(running: Running, aiperf: Path, tmp_path: Path) -> None:
    """The same requests, one at a time, in turn: ours, aiperf's, ours and so on.

    Both are in parts of the server's own rate of the same streams: what else runs here changes from one stream to the
    next, and aiperf itself takes a core that our client leaves to the server.
    """
    if running.interval != INTERVAL:
        pytest.skip("once is enough, where chunks are not tokens")
    seen: dict[str, list[float]] = {"ours": [], "aiperf's": []}
    for turn in range(3):
        seen["ours"] += [ours(running.server), ours(running.server)]
        seen["aiperf's"].append(theirs(running, aiperf, tmp_path / str(turn)))
    assert 0.98 <= median(seen["ours"]) / median(seen["aiperf's"]) <= 1.02, seen


def test_a_scheduler_that_is_killed_in_the_middle_ends_in_bounded_time(running: Running) -> None:
    """The last test of this server. Its HTTP process lives on for a while and says nothing."""
    killer = threading.Timer(2, os.kill, (running.scheduler(), signal.SIGKILL))
    killer.start()
    seen = complete(running.server, PROMPT, 4000, Limits(first_s=20, idle_s=5), ignore_eos=True)
    killer.join()
    assert seen.verdict in ("error", "hang"), seen
    assert seen.reason
