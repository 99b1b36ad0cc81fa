"""Server-sent events: bytes in, whole events out. Where the bytes are split never changes the result.

Follows the HTML standard, "Server-sent events": lines end with LF, CRLF or CR, a colon begins a comment, an empty line
ends an event. Only the standard library: it runs on the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LINE = 1 << 24
"""Bytes. No chunk of a language model is longer; a server that sends no line end must not fill the memory."""

_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"


class TooLong(ValueError):
    """A line longer than MAX_LINE."""


@dataclass(frozen=True)
class Event:
    """One event: its field ("data", or "error" as llama.cpp once named it) and its text."""

    field: str
    text: str


class Splitter:
    """Collects bytes and gives back the events that they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._began = False
        self._after_cr = False
        self._data: list[str] = []
        self._error: list[str] = []

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises TooLong."""
        events: list[Event] = []
        pieces = _LINE_END.split(data)
        ends = _LINE_END.findall(data)
        for piece, end in zip(pieces, ends, strict=False):
            # CRLF is one line end, also when the bytes were split between the two.
            if end == b"\n" and self._after_cr and not piece and not self._rest:
                self._after_cr = False
                continue
            self._after_cr = end == b"\r"
            line, self._rest = self._rest + piece, b""
            events += self._line(line)
        if pieces[-1]:
            self._after_cr = False
        self._rest += pieces[-1]
        if len(self._rest) > MAX_LINE:
            raise TooLong(f"a line of more than {MAX_LINE >> 20} MiB")
        return events

    def end(self) -> list[Event]:
        """What the stream ended with: servers leave out the last empty line."""
        line, self._rest = self._rest, b""
        return (self._line(line) if line else []) + self._dispatch()

    def _line(self, line: bytes) -> list[Event]:
        if not self._began:
            self._began, line = True, line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        kept = {"data": self._data, "error": self._error}.get(name)
        if kept is not None:
            kept.append(value.removeprefix(" "))
        return []

    def _dispatch(self) -> list[Event]:
        found = [
            Event(name, "\n".join(lines)) for name, lines in (("data", self._data), ("error", self._error)) if lines
        ]
        self._data, self._error = [], []
        return found
