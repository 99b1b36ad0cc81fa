"""Ask an OpenAI-compatible server: one streamed completion, or one small page. Times by the monotonic clock.

Nothing raises for what a server can do: it is a Reading or an Answer. Only the standard library: it runs on the host.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from ktfleet.measure.stream import Limits, Reading, Stream

READ = 1 << 16
PAGE = 1 << 22
"""Bytes of one page that are read."""
CONNECT_S = 10.0

GREEDY: dict[str, Any] = {
    "temperature": 0, "top_p": 1, "top_k": 1, "min_p": 0, "seed": 0, "n": 1, "presence_penalty": 0,
    "frequency_penalty": 0, "repetition_penalty": 1, "repeat_penalty": 1,
}  # fmt: skip
"""Every sampling field, because a server fills in the missing ones from the model's generation_config.json.
repetition_penalty is sglang's and vLLM's name, repeat_penalty llama.cpp's; servers ignore the other one."""

STREAMED = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@dataclass(frozen=True)
class Server:
    """Where it is: `url` up to and without /v1. `key`: its API key. `extra`: fields that every request gets."""

    url: str
    model: str = "default"
    key: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()

    def connect(self, limit_s: float) -> HTTPConnection:
        """Not connected yet."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(parts.hostname or "127.0.0.1", parts.port, timeout=limit_s)

    def path(self, path: str) -> str:
        """A path of the API below the url's own."""
        return urlsplit(self.url).path.rstrip("/") + path

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass(frozen=True)
class Answer:
    """A page: status None and a reason when there was no answer."""

    status: int | None
    text: str = ""
    why: str = ""


def page(server: Server, path: str, limit_s: float = CONNECT_S) -> Answer:
    """GET a small page."""
    connection = server.connect(limit_s)
    try:
        connection.request("GET", server.path(path), headers=server.headers)
        response = connection.getresponse()
        return Answer(response.status, response.read(PAGE).decode("utf-8", "replace"))
    except (OSError, HTTPException) as error:
        return Answer(None, why=why(error))
    finally:
        connection.close()


def complete(server: Server, prompt: str, max_tokens: int, limits: Limits | None = None, **fields: Any) -> Reading:
    """One streamed chat completion at temperature 0, read to its end."""
    messages = [{"role": "user", "content": prompt}]
    body = {"model": server.model, "messages": messages, "max_tokens": max_tokens, **GREEDY, **STREAMED}
    return ask(server, {**body, **dict(server.extra), **fields}, limits or Limits())


def ask(server: Server, body: dict[str, Any], limits: Limits) -> Reading:
    """POST one chat completion and read its stream."""
    connection = server.connect(min(CONNECT_S, limits.first_s))
    stream = Stream(limits)
    try:
        connection.connect()
        text = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **server.headers}
        began = time.monotonic()
        socket = connection.sock
        connection.request("POST", server.path("/v1/chat/completions"), text, headers)
        socket.settimeout(limits.first_s)
        response = connection.getresponse()
        stream = Stream(limits, response.status, response.getheader("Retry-After"))
        _read(response, socket, stream, began)
    except TimeoutError:
        stream.expire()
    except OSError as error:
        stream.fail("cut", f"the server cannot be reached: {why(error)}")
    except HTTPException as error:
        stream.fail("malformed", f"the server does not speak HTTP: seen {why(error)}")
    finally:
        connection.close()
    return stream.reading()


def _read(response: HTTPResponse, socket: Any, stream: Stream, began: float) -> None:
    while not stream.over:
        socket.settimeout(max(stream.patience(time.monotonic() - began), 0.001))
        try:
            data = response.read1(READ)
        except (HTTPException, ConnectionError):  # cut off; the stream knows whether it was whole by then
            data = b""
        if not data:
            stream.end()
            return
        stream.feed(time.monotonic() - began, data)


def why(error: Exception) -> str:
    """One line."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
