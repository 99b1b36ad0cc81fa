"""An engine that does as it is told: a rate, bursts of tokens, garbage, a hang in a long prompt. It counts usage.

`python -m tests.engine '{"rate": 28.0, "hang_over": 4000}'` serves until its standard input ends; needs Python alone.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Engine:
    """rate: tokens a second of each stream. burst: the most tokens of a chunk. prefill: tokens a second.

    hang_over: words of a prompt that it never answers. says: what it writes, in circles. parsed: tool calls and
    reasoning come apart from the text, as from a server with parsers; else as a model's marks in it. foreign: requests
    in flight that it claims to have beside the real ones. model: its name.
    """

    rate: float = 28.0
    burst: int = 5
    prefill: float = 100_000.0
    hang_over: int = 1 << 30
    parsed: bool = True
    says: str = "a quiet harbour in the morning light with boats and people"
    foreign: int = 0
    model: str = "tiny"
    running: int = 0
    over: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, *_: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        pages = {
            "/health": "ok",
            "/metrics": f'sglang:num_running_reqs{{tp="0"}} {self.engine.running + self.engine.foreign}.0\n',
            "/v1/models": json.dumps({"data": [{"id": self.engine.model}]}),
        }
        body = pages.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.engine.running += 1
        try:
            self._answer(asked)
        except ConnectionError:
            pass
        finally:
            self.engine.running -= 1

    def _answer(self, asked: dict[str, Any]) -> None:
        if not asked.get("stream") or "prompt" in asked or "tools" in asked or _thinks(asked):
            self._whole(asked)
            return
        words = len(asked["messages"][0]["content"].split())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if words > self.engine.hang_over:
            self.engine.over.wait()
            return
        time.sleep(words / self.engine.prefill)
        self._event(words, None, role="assistant", content="")
        began, sent, total = time.monotonic(), 0, asked["max_tokens"]
        dice, text = random.Random(words), self.engine.says.split()
        while sent < total:
            size = min(1 if not sent else dice.randint(1, self.engine.burst), total - sent)
            # A chunk comes when its last token is ready.
            due = began + (sent + size - 1) / self.engine.rate
            time.sleep(max(0.0, due - time.monotonic()))
            content = "".join(f" {text[n % len(text)]}" for n in range(sent, sent + size))
            sent += size
            self._event(words, sent, content=content)
        self._event(words, sent, finish="length")
        self.wfile.write(b"data: [DONE]\n\n")

    def _whole(self, asked: dict[str, Any]) -> None:
        """What is no plain stream of chat: without a rate."""
        message, finish = _message(asked, self.engine)
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        common = {"id": "1", "created": 1, "model": self.engine.model, "usage": usage}
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            for delta in _pieces(message):
                part = {"text": delta["content"]} if "prompt" in asked else {"delta": delta}
                data = {**common, "usage": None, "choices": [{"index": 0, "finish_reason": None, **part}]}
                self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
            last = {"index": 0, "finish_reason": finish, "text": "", "delta": {}}
            self.wfile.write(f"data: {json.dumps({**common, 'choices': [last]})}\n\ndata: [DONE]\n\n".encode())
            return
        answer = {"text": message["content"]} if "prompt" in asked else {"message": message}
        body = json.dumps({**common, "choices": [{"index": 0, "finish_reason": finish, **answer}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _event(self, prompt: int, tokens: int | None, finish: str | None = None, **delta: Any) -> None:
        data: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        if tokens is not None:
            data["usage"] = {"prompt_tokens": prompt, "completion_tokens": tokens}
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())


def _thinks(asked: dict[str, Any]) -> bool:
    return bool(asked.get("chat_template_kwargs", {}).get("thinking"))


def _message(asked: dict[str, Any], told: Engine) -> tuple[dict[str, Any], str]:
    """An answer and its finish reason: a call where a tool is offered, reasoning where it is asked for."""
    if asked.get("tools") and asked["messages"][-1]["role"] == "user":
        function = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"city": "Paris"}'}
        if not told.parsed:
            return {"role": "assistant", "content": f"<tool_call>{json.dumps(function)}</tool_call>"}, "stop"
        call = {"id": "call_1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    if _thinks(asked):
        if not told.parsed:
            return {"role": "assistant", "content": f"<think>let me see</think>{told.says}"}, "stop"
        return {"role": "assistant", "reasoning_content": "let me see", "content": told.says}, "stop"
    return {"role": "assistant", "content": told.says}, "stop"


def _pieces(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same as deltas: words of text, halves of a call's arguments."""
    for key in ("reasoning_content", "content"):
        for word in (message.get(key) or "").split(" ") if message.get(key) else ():
            yield {key: f"{word} "}
    for at, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        yield {"tool_calls": [{**call, "index": at, "function": {"name": call["function"]["name"], "arguments": ""}}]}
        for half in (arguments[:6], arguments[6:]):
            yield {"tool_calls": [{"index": at, "function": {"arguments": half}}]}


@contextmanager
def engine(**how: Any) -> Iterator[str]:
    """A running engine; its url."""
    told = Engine(**how)
    handler = type("Handler", (Handler,), {"engine": told})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        told.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with engine(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")) as url:
        print(url, flush=True)
        sys.stdin.read()
