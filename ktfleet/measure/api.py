"""The server's OpenAI interface, as the official client sees it: each feature tried once.

It decides nothing and never raises: what came back is told, or why nothing did. It runs on the host, where the server
listens, with the server's Python, whose packages bring that client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ktfleet.measure.serving import connect, wait_until_ready

SCHEMA = 1
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The current weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CITY = "Paris"
ASK, COMPLETE = "Say in one sentence what a harbour is.", "A harbour is"
ASK_TOOL = f"What is the weather in {CITY} now? Use the tool."
ASK_THINKING = "Is 91 a prime number? Answer yes or no."
SHOWN = 400
"""Characters of a text that are kept."""


@dataclass(frozen=True)
class Order:
    """url: of the server. model: "": the first one that it names. tokens: of an answer. key_file: on the host."""

    url: str
    model: str = ""
    tokens: int = 512
    key_file: str | None = None
    ready_s: float = 60.0
    limit_s: float = 300.0


def measure(order: Order) -> dict[str, Any]:
    """Everything, or why not."""
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "why": "", "client": "", "tries": {}}
    try:
        import openai
    except ImportError as error:
        return {**record, "why": f"this Python has no official client: {error}"}
    try:
        server = connect(order.url, order.model or None, order.key_file, {})
    except OSError as error:
        return {**record, "why": f"{error.filename}: {(error.strerror or 'cannot be read').lower()}"}
    ready = wait_until_ready(server, order.ready_s)
    if not ready["ready"]:
        return {**record, "why": f"the server is not ready: {ready['why']}"}
    client = openai.OpenAI(
        base_url=f"{order.url}/v1", api_key=server.key or "none", timeout=order.limit_s, max_retries=0
    )
    tries = Tries(client, server.model, order.tokens)
    found = {name: _tried(work) for name, work in tries.all().items()}
    return {**record, "client": openai.__version__, "tries": found}


def _tried(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a client raises is an answer."""
    try:
        return work()
    except Exception as error:
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]}


@dataclass
class Tries:
    """The features of one model, each by its name."""

    client: Any
    model: str
    tokens: int

    def all(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """In the order in which they are tried."""
        return {
            "models": self.models,
            "chat": lambda: self.chat(ASK),
            "chat_stream": lambda: self.chat(ASK, stream=True),
            "completion": self.completion,
            "completion_stream": self.completion_stream,
            "tool": lambda: self.chat(ASK_TOOL, tools=[TOOL]),
            "tool_stream": lambda: self.chat(ASK_TOOL, stream=True, tools=[TOOL]),
            "tool_result": self.tool_result,
            "reasoning": lambda: self.chat(ASK_THINKING, thinking=True),
            "reasoning_stream": lambda: self.chat(ASK_THINKING, stream=True, thinking=True),
        }

    def models(self) -> dict[str, Any]:
        """The names that the server has."""
        return {"models": [model.id for model in self.client.models.list()]}

    def chat(self, text: str, stream: bool = False, thinking: bool = False, **more: Any) -> dict[str, Any]:
        """One question. thinking: the chat template is asked for it, by the names that templates have for that."""
        return self._chat([{"role": "user", "content": text}], stream, thinking, **more)

    def tool_result(self) -> dict[str, Any]:
        """A call that was made, with its result: now the answer comes as text."""
        call: dict[str, Any] = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": f'{{"city": "{CITY}"}}'},
        }
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": ASK_TOOL},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"celsius": 18, "sky": "clear"}'},
        ]
        return self._chat(messages, tools=[TOOL])

    def _chat(
        self, messages: list[dict[str, Any]], stream: bool = False, thinking: bool = False, **more: Any
    ) -> dict[str, Any]:
        switch = {"chat_template_kwargs": {"thinking": thinking, "enable_thinking": thinking}}
        asked = {"model": self.model, "messages": messages, "max_tokens": self.tokens, "temperature": 0.0, **more}
        if stream:
            chunks = self.client.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}, extra_body=switch
            )
            return _chat_stream(chunks)
        answer = self.client.chat.completions.create(**asked, extra_body=switch)
        choice = answer.choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
        said = _said(choice.message.content, _reasoning(choice.message), choice.finish_reason, answer.usage)
        return {**said, "calls": _calls(calls)}

    def completion(self) -> dict[str, Any]:
        """A text to go on with."""
        answer = self.client.completions.create(
            model=self.model, prompt=COMPLETE, max_tokens=min(self.tokens, 32), temperature=0.0
        )
        return _said(answer.choices[0].text, "", answer.choices[0].finish_reason, answer.usage)

    def completion_stream(self) -> dict[str, Any]:
        """The same, as it comes."""
        text, finish, usage = "", None, None
        for chunk in self.client.completions.create(
            model=self.model,
            prompt=COMPLETE,
            max_tokens=min(self.tokens, 32),
            temperature=0.0,
            stream=True,
            stream_options={"include_usage": True},
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text, finish = text + (choice.text or ""), choice.finish_reason or finish
        return _said(text, "", finish, usage)


def _chat_stream(chunks: Iterator[Any]) -> dict[str, Any]:
    text, thought, finish, usage = "", "", None, None
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            text, thought = text + (choice.delta.content or ""), thought + _reasoning(choice.delta)
            for part in choice.delta.tool_calls or ():
                call = calls.setdefault(part.index, ["", ""])
                call[0] += (part.function.name if part.function else None) or ""
                call[1] += (part.function.arguments if part.function else None) or ""
    made = [(name, arguments) for _, (name, arguments) in sorted(calls.items())]
    return {**_said(text, thought, finish, usage), "calls": _calls(made)}


def _reasoning(message: Any) -> str:
    """What servers beside OpenAI's own put into a field of this name; vLLM calls it otherwise."""
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""


def _said(text: str | None, reasoning: str, finish: str | None, usage: Any) -> dict[str, Any]:
    return {
        "text": (text or "")[:SHOWN],
        "reasoning": reasoning[:SHOWN],
        "finish": finish,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
    }


def _calls(calls: Sequence[tuple[str | None, str | None]]) -> list[dict[str, str]]:
    return [{"name": (name or "")[:SHOWN], "arguments": (arguments or "")[:SHOWN]} for name, arguments in calls]
