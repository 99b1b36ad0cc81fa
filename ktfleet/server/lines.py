"""What the server says: how far its start is, and when it is of no use although it goes on. Pure."""

from __future__ import annotations

import re
from collections import deque

from ktfleet.problem import Problem
from ktfleet.translate import fatal, translate

KEPT = 200
"""Last lines that explain an end."""
LONGEST = 4096
"""Characters of a line; a longer one is cut there."""

_STEPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\[NativeMoEWrapper Layer (\d+)\] load_experts|loader after layer (\d+)"), "loading layer {number}"),
    (re.compile(r"Loading safetensors[^:]*: *\d+% Completed \| (\d+/\d+)"), "loading the checkpoint's files: {number}"),
    (re.compile(r"Load weight begin"), "loading the weights"),
    (re.compile(r"Load weight end"), "the weights are loaded"),
    (re.compile(r"Capturing batches[^|]*\|[^|]*\| *(\d+/\d+)"), "capturing graphs: {number}"),
    (re.compile(r"Capture cuda graph"), "capturing graphs"),
    (re.compile(r"\b(?:nvcc|ninja|JIT|tilelang)\b.*\b(?:compil|build)\w*", re.IGNORECASE), "compiling kernels"),
    (re.compile(r"fired up and ready to roll"), "asking for a token"),
)
"""As sglang-kt 0.7.2 and kt-kernel 0.7.2 print them."""

_ERROR = re.compile(r"^(?:\[[^\]]*\] *)?[\w.]*(?:Error|Exception|Interrupt)\b.*")


class Lines:
    """Takes bytes as they come. step: how far it is, None: nothing was recognised yet. problem: a fatal line's."""

    def __init__(self, layers: int | None = None) -> None:
        self.step: str | None = None
        self.problem: Problem | None = None
        self._layers = layers
        self._rest = b""
        self._last: deque[str] = deque(maxlen=KEPT)

    def feed(self, data: bytes) -> None:
        """Whole lines are read; a progress bar ends its lines with a carriage return."""
        *whole, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        for line in whole:
            self._line(line)
        if len(self._rest) > LONGEST:
            self._line(self._rest)
            self._rest = b""

    def ended(self, how: str) -> Problem:
        """Why the server ended, from its last words. how: its status, in words."""
        if self._rest:
            self.feed(b"\n")
        known = self.problem or translate("\n".join(self._last))
        if known:
            return known
        words = [line for line in self._last if line.strip()]
        errors = [line for line in words if _ERROR.match(line)]
        last = " ".join((errors or words or ["nothing"])[-1].split())[:160]
        do = "read `journalctl -u ktfleet-server`"
        return Problem("the server ended", f"{how}; its last word: {last!r}", "one that goes on", do)

    def _line(self, data: bytes) -> None:
        line = data[:LONGEST].decode("utf-8", "replace")
        self._last.append(line)
        self.problem = self.problem or fatal(line)
        for pattern, step in _STEPS:
            match = pattern.search(line)
            if match:
                self.step = step.format(number=self._number(next(filter(None, match.groups()), "")))
                return

    def _number(self, text: str) -> str:
        """Layers count from 0, and only their number is printed."""
        if not text.isdecimal():
            return text
        return f"{int(text) + 1} of {self._layers}" if self._layers else text
