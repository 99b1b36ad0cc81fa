"""What an answer means that is no stream. Only the standard library: it runs on the host."""

from __future__ import annotations

import json
from typing import Any, Literal

from ktfleet.measure import chunks

Kind = Literal["", "unauthorised", "busy", "loading", "unknown-model", "refused", "server", "malformed", "cut", "hang"]
"""The classes of errors; "": none."""

_WORDS: dict[int, tuple[Kind, str]] = {
    401: ("unauthorised", "the server wants a key, and not this one"),
    403: ("unauthorised", "the server refuses this key"),
    404: ("unknown-model", "the server knows no such model, or no such path"),
    429: ("busy", "the server is busy"),
    503: ("loading", "the server is still loading, or has no room"),
}


def kind(status: int | None) -> Kind:
    """The class of an HTTP status, also of one in an error object."""
    if status in _WORDS:
        return _WORDS[status][0]
    return "refused" if status is not None and 400 <= status < 500 else "server"


def explain(status: int | None, body: bytes, retry_after: str | None = None) -> tuple[Kind, str]:
    """Class and reason. `status` None: the HTTP answer was good or was not recorded; an error object may tell one."""
    data = _object(body)
    said = f": {chunks.words(data)}" if data.get("error") else ""
    status = chunks.code(data) if status is None and said else status
    if status is None and said:
        return "server", f"the answer is no stream{said}"
    if status is None:
        shown = ascii(body[:60].decode("utf-8", "replace")) if body.strip() else "nothing"
        return "malformed", f"the answer is no stream: seen {shown}"
    if status == 429 and retry_after and retry_after.isdigit():
        said += f"; it asks to wait {retry_after[:10]} s"
    words = _WORDS[status][1] if status in _WORDS else "the server answered with an error"
    return kind(status), f"{words} (HTTP {status}){said}"


def _object(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
