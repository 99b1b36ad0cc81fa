"""Our rate beside the server's own: llama.cpp counts its tokens and times them itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from ktfleet.measure.ask import Server, complete, page
from tests.peer.model import WORDS
from tests.peer.running import serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("rate"), {}) as running:
        yield running


def totals(server: Server) -> tuple[int, float]:
    """Tokens that the server has generated so far, and the seconds that it took for them by its own clock."""
    text = page(server, "/metrics").text
    found = {name: re.search(rf"^llamacpp:{name} (\S+)$", text, re.MULTILINE) for name in
             ("tokens_predicted_total", "tokens_predicted_seconds_total")}  # fmt: skip
    tokens, seconds = (match[1] for match in found.values() if match)
    return int(tokens), float(seconds)


def test_our_rate_is_the_servers_own_within_2_percent(server: Server) -> None:
    """The median of five: another process on this machine may take the core away between the two clocks."""
    ratios = []
    complete(server, "warm up", 16)
    for _ in range(5):
        tokens, seconds = totals(server)
        seen = complete(server, "Write some prose.", 128, ignore_eos=True)
        tokens, seconds = totals(server)[0] - tokens, totals(server)[1] - seconds
        assert (seen.verdict, seen.tokens, seen.finish, tokens) == ("ok", 128, "length", 128)
        assert seen.text.startswith("".join(WORDS))
        assert seen.decode_tok_s
        # Its clock begins with the first token, as ours does.
        ratios.append(seen.decode_tok_s * seconds / (tokens - 1))
    assert 0.98 <= median(ratios) <= 1.02, ratios


def test_what_it_refuses_is_told_in_its_words(server: Server) -> None:
    seen = complete(server, "word " * 5000, 8)
    assert (seen.verdict, seen.kind, seen.status) == ("error", "refused", 400)
    assert "exceeds the available context size" in seen.reason


def test_a_stop_of_the_server_in_the_middle_is_no_rate(tmp_path: Path) -> None:
    with serving(tmp_path, {"the cue": ["one", " two", " three"]}) as own:
        assert complete(own, "say the cue", 64).text == "one two three"
        assert complete(own, "say the cue", 2).finish == "length"
    seen = complete(own, "say the cue", 64)
    assert (seen.verdict, seen.kind) == ("error", "cut")
