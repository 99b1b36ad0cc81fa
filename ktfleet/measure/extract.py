"""From an answer to the code in it. Only text is looked at: nothing is parsed or run outside of the sandbox.

Only the standard library: it runs on the host.
"""

from __future__ import annotations

import re
from textwrap import dedent

_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THINKING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_LATE_END = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n"  # opens, with a language or without
    r"(.*?)"
    r"(?:^[ \t]*\1[`~]*[ \t]*$|\Z)",  # closes, or was cut off
    re.DOTALL | re.MULTILINE,
)
_START = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def |class |import |from \w|@\w|[A-Za-z_]\w*[ \t]*(?::[^=\n]*)?=)", re.MULTILINE
)
_CODE_LINE = re.compile(
    r"^(?:[ \t]|$|#|@|\)|\]|\}|[\w.]+[ \t]*[=(\[]"
    r"|(?:def|class|import|from|if|elif|else|for|while|try|except|finally|with|async|return|print|assert|raise)\b)"
)
PYTHON = ("", "python", "python3", "py", "py3")
MOST = 8
"""Pieces of code of one answer that are tried."""


def answer(text: str) -> str | None:
    """The text without its reasoning; None when that has no end: then there is no answer."""
    text = _THINKING.sub("", text.replace("\r\n", "\n"))
    if _OPEN_THINKING.search(text):
        return None
    # Some templates put the opening mark into the prompt.
    return _LATE_END.sub("", text).strip()


def candidates(text: str, function: str) -> list[str]:
    """Pieces that may be the program, the likeliest first: where a model corrects itself, its last word counts."""
    found = [dedent(body) for _, language, body in _FENCE.findall(text) if language.lower() in PYTHON]
    defining = [number for number, code in enumerate(found) if defines(code, function)]
    # A helper may have a block of its own, before the function's.
    together = ["\n\n".join(found[: defining[-1] + 1])] if defining else ["\n\n".join(found)]
    alone = [found[number] for number in reversed(defining)]
    bare = [] if found else _bare(text)
    return [code for code in dict.fromkeys((*together, *alone, *reversed(found), *bare)) if code.strip()][:MOST]


def defines(code: str, function: str) -> bool:
    """Whether the code seems to define the function."""
    return bool(re.search(rf"\b(?:def[ \t]+{re.escape(function)}\b|{re.escape(function)}[ \t]*(?::[^=\n]*)?=)", code))


def _bare(text: str) -> list[str]:
    """Code without fences: from the first line that looks like it, as far as the lines do."""
    start = _START.search(text)
    if not start:
        return []
    rest = text[start.start() :]
    lines = rest.split("\n")
    count = next((n for n, line in enumerate(lines) if not _CODE_LINE.match(line)), len(lines))
    return [dedent("\n".join(lines[:count])), dedent(rest)]
