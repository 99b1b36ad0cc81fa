"""The rate of a stream: captures of real servers, made streams for each case, and what may never matter."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.measure import transcript
from ktfleet.measure.sse import MAX_LINE, Splitter, TooLong
from ktfleet.measure.stream import Limits
from ktfleet.problem import Refused
from tests.streams import DONE, ROLE, Read, bursts, chunk, end, event, read

CAPTURED = Path(__file__).parents[2] / "fixtures" / "transcripts"
ANSWERS = {
    # name: verdict, tokens, rate by the server's own timing or by (N-1)/(t_last-t_first), kind or approximate
    "llama_client_abort": ("error", None, None, "cut"),
    "llama_code_canary_fizzbuzz": ("ok", 119, 1577.65, "approximate"),
    "llama_completions": ("cannot-measure", 1, None, ""),
    "llama_concurrent_a": ("ok", 120, 559.74, "approximate"),
    "llama_continuous_usage": ("ok", 32, 1371.32, "approximate"),
    "llama_error_bad_json": ("error", None, None, "refused"),
    "llama_error_prompt_too_long": ("error", None, None, "refused"),
    "llama_ignore_eos_128": ("ok", 128, 1010.82, "approximate"),
    "llama_killed_mid_stream": ("error", None, None, "cut"),
    "llama_kv_exhausted_a": ("error", None, None, "server"),
    "llama_max_tokens_1": ("cannot-measure", 1, None, ""),
    "llama_max_tokens_cut": ("ok", 20, 1611.95, "approximate"),
    "llama_multi_token_utf8_chunks": ("ok", 36, 1802.82, "approximate"),
    "llama_no_stream_options": ("cannot-measure", None, None, ""),
    "llama_reasoning": ("ok", 93, 1705.95, "approximate"),
    "llama_role_first_final_usage": ("ok", 32, 1854.07, "approximate"),
    "llama_stop_sequence": ("ok", 15, 1583.53, "approximate"),
    "llama_tool_call": ("ok", 31, 1413.49, "approximate"),
    "sgl_code_canary_fizzbuzz": ("ok", 119, 354.96, "approximate"),
    "sgl_continuous_usage": ("ok", 32, 391.13, ""),
    "sgl_error_prompt_too_long": ("error", None, None, "refused"),
    "sgl_ignore_eos_128": ("ok", 128, 409.37, "approximate"),
    "tf_role_first_final_usage": ("ok", 32, 564.40, "approximate"),
}


def test_every_capture_has_a_known_answer() -> None:
    assert {path.stem for path in CAPTURED.glob("*.jsonl")} == set(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_captured_stream_reads_as_its_server_counted(name: str) -> None:
    verdict, tokens, rate, mark = ANSWERS[name]
    seen = transcript.replay(CAPTURED / f"{name}.jsonl")
    assert (seen.verdict, seen.tokens, seen.kind or ("approximate" if seen.approximate else "")) == (
        verdict, tokens, mark,
    )  # fmt: skip
    assert "\n" not in seen.reason
    assert bool(seen.reason) == (verdict != "ok")
    assert seen.decode_tok_s == (None if rate is None else pytest.approx(rate, rel=0.02))
    if seen.approximate:
        assert seen.low_tok_s <= seen.decode_tok_s <= seen.high_tok_s  # type: ignore[operator]


def counted(*sizes: int) -> list[Read]:
    return bursts(sizes, rate=28.0)


@pytest.mark.parametrize(("reads", "verdict", "tokens", "words"), [
    pytest.param(counted(1, 1, 1, 1), "ok", 4, "", id="one token a chunk"),
    pytest.param(counted(1, 5, 2, 3, 1, 4), "ok", 16, "", id="bursts"),
    pytest.param(counted(8, 8, 8, 8), "ok", 32, "", id="stream interval 8: the first chunk's tokens do not count"),
    pytest.param(counted(1, 16, 1), "ok", 18, "", id="a tool parser swallowed the text: usage jumps"),
    pytest.param([(0.1, b": ping\n\n"), *counted(1, 2, 3)], "ok", 6, "", id="keep-alive comments"),
    pytest.param([(t, data.replace(b"\n", b"\r\n")) for t, data in counted(1, 2, 3)], "ok", 6, "", id="CRLF"),
    pytest.param([(t, data.replace(b"\n", b"\r")) for t, data in counted(1, 2, 3)], "ok", 6, "", id="CR"),
    pytest.param(
        [(t, data.replace(DONE, b"")) for t, data in counted(1, 2, 3)], "ok", 6, "", id="no [DONE]"
    ),
    pytest.param([(0.1, chunk(choices=[])), *counted(1, 2, 3)], "ok", 6, "", id="choices empty"),
    pytest.param([(0.1, chunk(content=None)), *counted(1, 2, 3)], "ok", 6, "", id="null content"),
    pytest.param([*bursts([1, 1, 1], 28.0)[:-1], (9.0, end(3))], "ok", 3, "", id="a late finish adds no time"),
    pytest.param([(0.5, chunk(content="a")), (1, chunk(content="b")), (1.5, end(None))],
                 "cannot-measure", None, "sends no usage", id="no usage"),
    pytest.param(counted(1, 1), "cannot-measure", 2, "2 tokens in all are too few", id="2 tokens"),
    pytest.param([(1.0, ROLE + chunk(1, content="a") + chunk(9, content="b") + end(9))],
                 "cannot-measure", 9, "all 9 tokens came at once", id="all at once"),
    pytest.param([(0.5, chunk(4, content="a")), (1, chunk(2, content="b")), (2, end(9))],
                 "cannot-measure", 9, "went from 4 back to 2 tokens", id="usage goes backwards"),
    pytest.param([(5.0, chunk(1, content="a")), (2.0, chunk(5, content="b")), (6, end(9))],
                 "cannot-measure", 9, "clock went from 5.000 s back to 2.000 s", id="the clock was adjusted"),
    pytest.param(counted(1, 2, 3)[:-1], "error", 6, "ended after 4 events, before it was finished", id="cut off"),
    pytest.param([*counted(1, 2, 3)[:-1], (3, event({"error": {"message": "no memory", "code": 500}}) + DONE)],
                 "error", 6, "reports an error in the stream: no memory", id="error object"),
    pytest.param([*counted(1, 2, 3)[:-1], (3, b"error: {\"message\": \"lost\"}\n\n")],
                 "error", 6, "lost", id="an error field"),
    pytest.param([(1, ROLE), (2, event('{"choices": [{"delta"'))], "error", None, "event 2", id="malformed JSON"),
    pytest.param([(1, event('{"choices": 3}'))], "error", None, "no list of objects", id="choices of another type"),
    pytest.param([(1, event({"choices": [], "usage": {"completion_tokens": "9"}}))],
                 "error", None, "usage without a count", id="usage of another type"),
    pytest.param([(1, b"<html>nginx</html>")], "error", None, "no stream: seen '<html>", id="HTML"),
    pytest.param([], "error", None, "no stream: seen nothing", id="nothing"),
    pytest.param([(0, ROLE), *((float(n), chunk(n + 1, content="x")) for n in range(1, 3000))],
                 "error", 1801, "no end after 1800 s", id="infinite"),
    pytest.param([*counted(1, 2, 3)[:-1], (100, end(6))], "error", 6, "nothing came for 60 s after", id="hang"),
    pytest.param([(float(n), b": ping\n\n") for n in range(700)],
                 "error", None, "nothing came for 600 s before", id="only keep-alives"),
])  # fmt: skip
def test_each_case_gets_its_verdict_and_one_line(reads: list[Read], verdict: str, tokens: int, words: str) -> None:
    seen = read(reads)
    assert (seen.verdict, seen.tokens) == (verdict, tokens)
    assert words in seen.reason
    assert len(seen.reason.splitlines()) == bool(words)
    if verdict == "ok":
        assert seen.decode_tok_s == pytest.approx(28.0)
        assert not seen.approximate


@pytest.mark.parametrize(("status", "kind", "words"), [
    (401, "unauthorised", "wants a key"), (403, "unauthorised", "refuses this key"),
    (404, "unknown-model", "knows no such model"), (429, "busy", "asks to wait 7 s"), (503, "loading", "loading"),
    (400, "refused", "HTTP 400"), (500, "server", "HTTP 500"), (302, "server", "HTTP 302"),
])  # fmt: skip
def test_an_http_error_says_what_it_means(status: int, kind: str, words: str) -> None:
    seen = read([(0.1, b'{"error": {"message": "its own\\nwords"}}')], status=status, retry_after="7")
    assert (seen.verdict, seen.kind, seen.status) == ("error", kind, status)
    assert words in seen.reason
    assert "its own words" in seen.reason


def test_prefill_is_apart_and_what_was_cached_is_no_work() -> None:
    seen = read(bursts([1, 1, 1, 1], 10.0, first=4.0))
    assert (seen.ttft_s, seen.prefill_tok_s) == (4.0, 20 / 4.0)
    cached = {"completion_tokens": 4, "prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 12}}
    seen = read([*bursts([1, 1, 1, 1], 10.0, first=4.0)[:-1], (5, event({"choices": [], "usage": cached}) + DONE)])
    assert (seen.cached_tokens, seen.prefill_tok_s) == (12, 8 / 4.0)


def test_a_stall_shows_in_the_percentiles_of_the_tokens() -> None:
    reads = [(float(n), chunk(n, content="x")) for n in range(1, 101)] + [(150.0, chunk(101, content="x") + end(101))]
    seen = read(reads)
    assert seen.token_gap_ms == {"p50": 1000.0, "p90": 1000.0, "p99": 1000.0, "max": 50000.0}
    assert seen.longest_gap_s == 50.0


def test_text_and_reasoning_are_kept_apart_whatever_the_field_is_called() -> None:
    for field in ("reasoning", "reasoning_content"):
        seen = read([(1, chunk(1, **{field: "hm"})), (2, chunk(3, content="5 €")), (3, end(4, "stop"))])
        assert (seen.reasoning, seen.text, seen.finish) == ("hm", "5 €", "stop")


@given(st.lists(st.integers(1, 5), min_size=5, max_size=60), st.floats(1.0, 200.0), st.booleans())
def test_bursts_measure_as_the_engine_was_set(sizes: list[int], rate: float, continuous: bool) -> None:
    sizes = [1, *sizes]
    seen = read(bursts(sizes, rate, continuous=continuous))
    assert seen.decode_tok_s == pytest.approx(rate, rel=1e-6)
    assert seen.approximate is not continuous


@given(st.lists(st.integers(1, 9), min_size=4, max_size=40), st.floats(1.0, 200.0))
def test_the_truth_lies_within_the_bounds(sizes: list[int], rate: float) -> None:
    """Whatever number of tokens the first chunk holds."""
    seen = read(bursts(sizes, rate, continuous=False))
    assert seen.low_tok_s <= rate * 1.000001  # type: ignore[operator]
    assert rate <= seen.high_tok_s * 1.000001  # type: ignore[operator]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Bytes of a stream with everything in it that a parser can trip over."""
    lines = st.sampled_from([
        chunk(content="grün €, 漢字 🙂"), chunk(3, content="x"), ROLE, DONE, b": ping\n\n", b"\n", b"\r\n", b"\r",
        b"event: x\ndata: {}\n\n", b"data:{\"choices\":\ndata: []}\n\n", b"data", b"id: 7\r\n\r\n", b"\xff\xfe\n",
        b"data: [DO", b"error: {}\n\n", end(9), b"\xef\xbb\xbf",
    ])  # fmt: skip
    return b"".join(draw(st.lists(lines, max_size=12)))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=8))
def test_where_the_bytes_are_split_never_matters(data: bytes, places: list[int]) -> None:
    def events(pieces: list[bytes]) -> list[object]:
        splitter = Splitter()
        return [*(event for piece in pieces for event in splitter.feed(piece)), *splitter.end()]

    assert events(cut(data, places)) == events([data]) == events([data[i : i + 1] for i in range(len(data))])
    assert read([(1.0, piece) for piece in cut(data, places)]) == read([(1.0, data)])


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 500), max_size=3))
def test_splitting_the_reads_of_a_capture_never_matters(name: str, places: list[int]) -> None:
    lines = [json.loads(line) for line in (CAPTURED / f"{name}.jsonl").read_text().splitlines()]
    whole = [(line["t"], line["raw"].encode()) for line in lines]
    assert read([(t, piece) for t, data in whole for piece in cut(data, places)]) == read(whole)


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    assert read([(1.0, data)]).verdict in ("ok", "cannot-measure", "error")


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    splitter = Splitter()
    splitter.feed(bytes(MAX_LINE))
    with pytest.raises(TooLong):
        splitter.feed(b"x")
    assert read([(float(n), b"x" * (1 << 20)) for n in range(20)]).kind == "malformed"


def test_patience_is_for_the_first_chunk_then_between_two_and_never_beyond_the_whole() -> None:
    limits = Limits(first_s=10, idle_s=2, total_s=11)
    assert read([(9, chunk(1, content="a")), (10.5, chunk(3, content="b") + end(3))], limits).verdict == "ok"
    late = read([(10.5, chunk(1, content="a"))], limits)
    assert (late.kind, late.reason) == ("hang", "nothing came for 10 s before the first chunk")
    gap = read([(1, chunk(1, content="a")), (3.5, end(3))], limits)
    assert gap.reason == "nothing came for 2 s after the last chunk"
    endless = read([(t, chunk(int(t), content="a")) for t in accumulate([1.0] * 20)], limits)
    assert endless.reason == "the stream had no end after 11 s"


@pytest.mark.parametrize("text", [
    "{", "[]", "3", '{"t": "now", "raw": ""}', '{"t": 1}', '{"t": -1, "raw": ""}', '{"t": NaN, "raw": ""}',
    '{"t": 1, "raw": 3}', '{"t": 1, "raw": "\\ud800"}', '{"t": 1, "raw": "", "status": "x"}', "[" * 100_000,
])  # fmt: skip
def test_a_file_that_is_no_transcript_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"t": 0.1, "raw": ": ping"}}\n{text}\n')
    with pytest.raises(Refused, match="line 2"):
        transcript.replay(path)


def test_a_recorded_http_error_and_bytes_that_were_no_text(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    path.write_text('{"t": 0.1, "status": 429, "retry_after": 3}\n')
    assert transcript.replay(path).kind == "busy"
    halves = chunk(1, content="€").replace(b"\\u20ac", "€".encode()).partition(b"\xe2\x82")
    reads = [(1.0, halves[0] + halves[1]), (2.0, halves[2] + end(4))]
    lines = (json.dumps({"t": t, "raw": data.decode("utf-8", "surrogateescape")}) for t, data in reads)
    path.write_text("\n".join(lines))
    assert transcript.replay(path).text == "€"
