"""The client against sockets that answer as broken servers do: no library breaks like that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ktfleet.measure.ask import Server, complete, page
from ktfleet.measure.stream import Limits
from tests.streams import ROLE, chunk, end

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
PATIENT = Limits(first_s=20, idle_s=20, total_s=60)
HASTY = Limits(first_s=0.3, idle_s=0.3, total_s=60)


@contextmanager
def answering(talk: Callable[[socket.socket], None]) -> Iterator[tuple[Server, list[bytes]]]:
    """A server that talks with one client; what it was asked."""
    asked: list[bytes] = []
    over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            asked.append(request(connection))
            talk(connection)
            over.wait(20)  # silent, until the client has given up

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Server(f"http://127.0.0.1:{listener.getsockname()[1]}", key="secret"), asked
        finally:
            over.set()
            thread.join()


def request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def says(*data: bytes, close: bool = True) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        connection.sendall(b"".join(data))
        if close:
            connection.shutdown(socket.SHUT_WR)

    return talk


TOKENS = ROLE + chunk(1, content="a") + chunk(2, content="b")


@pytest.mark.parametrize(("talk", "limits", "kind", "words"), [
    pytest.param(says(HEAD, b"Transfer-Encoding: chunked\r\n\r\n", chunked(TOKENS), b"ff\r\ndata: {"),
                 PATIENT, "cut", "before it was finished", id="dies in a chunk"),
    pytest.param(says(HEAD, b"\r\n", TOKENS), PATIENT, "cut", "before it was finished", id="closes early"),
    pytest.param(says(HEAD, b"\r\n", TOKENS, close=False), HASTY, "hang", "after the last chunk", id="hangs"),
    pytest.param(says(HEAD, b"\r\n", close=False), HASTY, "hang", "before the first chunk", id="hangs in the prefill"),
    pytest.param(says(close=False), HASTY, "hang", "before the first chunk", id="never answers"),
    pytest.param(says(), PATIENT, "cut", "cannot be reached", id="closes without an answer"),
    pytest.param(says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), PATIENT, "malformed", "does not speak HTTP", id="no HTTP"),
    pytest.param(says(b"HTTP/1.1 401 Unauthorized\r\n\r\n{}"), PATIENT, "unauthorised", "HTTP 401", id="401"),
    pytest.param(says(b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\n\r\n"), PATIENT, "busy", "to wait 7 s", id="429"),
    pytest.param(says(b'HTTP/1.1 503 No\r\n\r\n{"error": {"message": "Loading model"}}'),
                 PATIENT, "loading", "Loading model", id="503"),
    pytest.param(says(b"HTTP/1.1 404 No\r\n\r\n"), PATIENT, "unknown-model", "no such model", id="404"),
])  # fmt: skip
def test_a_server_that_misbehaves_gets_a_verdict_in_bounded_time(
    talk: Callable[[socket.socket], None], limits: Limits, kind: str, words: str
) -> None:
    with answering(talk) as (server, _):
        seen = complete(server, "hello", 8, limits)
    assert (seen.verdict, seen.kind) == ("error", kind)
    assert words in seen.reason
    assert len(seen.reason.splitlines()) == 1


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert complete(server, "hello", 8).reason == "the server cannot be reached: Connection refused"
    assert page(server, "/health").why == "Connection refused"


def test_a_whole_stream_ends_with_its_mark_although_the_connection_stays_open() -> None:
    with answering(says(HEAD, b"\r\n", TOKENS, end(9), close=False)) as (server, asked):
        seen = complete(server, "hello", 8, PATIENT, ignore_eos=True)
    assert (seen.tokens, seen.text, seen.finish) == (9, "ab", "length")
    for part in (b"POST /v1/chat/completions", b"Authorization: Bearer secret", b'"temperature": 0', b'"top_p": 1',
                 b'"top_k": 1', b'"min_p": 0', b'"repetition_penalty": 1', b'"presence_penalty": 0', b'"seed": 0',
                 b'"ignore_eos": true', b'"continuous_usage_stats": true', b'"include_usage": true'):  # fmt: skip
        assert part in asked[0]


def test_a_page() -> None:
    with answering(says(b"HTTP/1.1 200 OK\r\n\r\nfine")) as (server, asked):
        answer = page(server, "/health")
    assert (answer.status, answer.text) == (200, "fine")
    assert asked[0].startswith(b"GET /health HTTP/1.1\r\n")
