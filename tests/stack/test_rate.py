"""Our rate beside that of the real sglang-kt server, on a CPU: it counts its tokens and times them itself."""

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
from tests.stack import sglang_on_cpu
from tests.stack.sglang_on_cpu import Running

pytestmark = pytest.mark.stack

INTERVAL = 8


@pytest.fixture(scope="module", params=[1, INTERVAL], ids=lambda tokens: f"every {tokens}")
def running(
    request: pytest.FixtureRequest, stack_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sglang")
    with sglang_on_cpu.serving(stack_python, folder, "--stream-interval", str(request.param)) as made:
        complete(made.server, "warm up", 16)
        yield made


def decoding_s(server: Server) -> float:
    """Seconds that the server has spent on all tokens but the first of each answer, by its own clock."""
    text = page(server, "/metrics").text

    def total(name: str) -> float:
        return sum(map(float, re.findall(rf"^sglang:{name}_sum{{.*}} (\S+)$", text, re.MULTILINE)))

    return total("e2e_request_latency_seconds") - total("time_to_first_token_seconds")


def test_our_rate_is_the_servers_own_within_2_percent(running: Running) -> None:
    """The median of seven: another process on this machine may take the core away between the two clocks."""
    ratios = []
    for _ in range(7):
        before = decoding_s(running.server)
        seen = complete(running.server, "Write some prose.", 129, ignore_eos=True)
        time.sleep(0.2)  # it counts when it has told the end
        assert (seen.verdict, seen.tokens, seen.finish, seen.approximate) == ("ok", 129, "length", False)
        assert seen.decode_tok_s
        ratios.append(seen.decode_tok_s * (decoding_s(running.server) - before) / (seen.tokens - 1))
    assert 0.98 <= median(ratios) <= 1.02, ratios


def test_a_scheduler_that_is_killed_in_the_middle_ends_in_bounded_time(running: Running) -> None:
    """The last test of this server. Its HTTP process lives on for a while and says nothing."""
    killer = threading.Timer(2, os.kill, (running.scheduler(), signal.SIGKILL))
    killer.start()
    seen = complete(running.server, "Write some prose.", 4000, Limits(first_s=20, idle_s=5), ignore_eos=True)
    killer.join()
    assert seen.verdict in ("error", "hang"), seen
    assert seen.reason
