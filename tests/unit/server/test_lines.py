"""What the server says, read as it comes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ktfleet.server.lines import LONGEST, Lines

LOG = (
    b"[2026-12-02 10:00:00] Load weight begin. avail mem=30.21 GB\n"
    b"Loading safetensors checkpoint shards:  12% Completed | 5/46 [00:01<00:08,  5.00it/s]\r"
    b"[NativeMoEWrapper Layer 11] load_experts: 310.0ms, prepare_tensors: 1.0ms\n"
    b"Load weight end. elapsed=200.1 s\r\n"
    b"Capture cuda graph bs [1, 2, 4]\n"
    b"Capturing batches (bs=2 avail_mem=8.11 GB):  33%|###       | 1/3 [00:02<00:04]\r"
)
STEPS = [
    "loading the weights", "loading the checkpoint's files: 5/46", "loading layer 12 of 43", "the weights are loaded",
    "capturing graphs", "capturing graphs: 1/3",
]  # fmt: skip
FATAL = b"Core 2 inside NUMA node 1 not found\n"


def test_each_step_of_a_start() -> None:
    lines, seen = Lines(43), []
    for line in LOG.splitlines(keepends=True):
        lines.feed(line)
        seen.append(lines.step)
    assert seen == STEPS
    assert lines.problem is None


@given(st.lists(st.integers(0, len(LOG + FATAL)), max_size=20))
def test_how_the_bytes_arrive_does_not_matter(cuts: list[int]) -> None:
    text, lines = LOG + FATAL, Lines(43)
    edges = sorted({0, len(text), *cuts})
    for start, end in pairwise(edges):
        lines.feed(text[start:end])
    assert lines.step == STEPS[-1]
    assert lines.problem
    assert lines.problem.what.startswith("a worker found no core of its own")


@given(st.binary(max_size=3 * LONGEST))
def test_nothing_that_is_said_breaks_it(data: bytes) -> None:
    lines = Lines()
    lines.feed(data)
    told = lines.ended("exit status 1")
    assert len(str(told).splitlines()) == 1


def test_the_end_is_explained_by_a_known_cause_else_by_the_last_error() -> None:
    known = Lines()
    known.feed(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n[rank0]: exiting\n")
    assert known.ended("exit status 1").what == "something else holds the card's memory"
    unknown = Lines()
    unknown.feed(b"Traceback (most recent call last):\nValueError: no such thing\nKilling the children")
    assert str(unknown.ended("exit status 1")) == (
        "the server ended: seen exit status 1; its last word: 'ValueError: no such thing', wanted one that goes on; "
        "read `journalctl -u ktfleet-server`"
    )
    assert "its last word: 'nothing'" in str(Lines().ended("signal 9"))


def test_a_first_fatal_line_stays() -> None:
    lines = Lines()
    lines.feed(FATAL + b"alloc 3 from other numa for 7f\n" * 1000)
    assert lines.problem == lines.ended("exit status 1")
    assert "Core 2 inside" in lines.problem.seen
