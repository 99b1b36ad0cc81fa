"""Text that no working model writes. It is found by its form, whatever was asked and however fast it came. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

ENOUGH = 40
"""Characters, below which a form means nothing: "4, 4, 4" may be an answer."""
FENCED = re.compile(r"`{3}.*?(?:`{3}|\Z)|~{3}.*?(?:~{3}|\Z)|(['\"]).*?\1", re.DOTALL)


def garbage(text: str) -> str | None:
    """What is wrong with the form of an answer; None: nothing."""
    if not text.strip():
        return "it is empty"
    return _no_text(text) or _repeated(text) or _language(text)


def _no_text(text: str) -> str | None:
    odd = sum(unicodedata.category(c) in ("Cc", "Cn", "Co", "Cs") or c == "\ufffd" for c in text if c not in "\n\r\t")
    if odd > max(1, len(text) // 20):
        return f"{odd} of {len(text)} characters are no text"
    letters = sum(c.isalnum() for c in text)
    if len(text) >= ENOUGH and letters < len(text) // 20:
        return f"{letters} of {len(text)} characters are letters or digits"
    return None


def _repeated(text: str) -> str | None:
    """One token, one line or one phrase again and again: also when it only ends so."""
    if len(text) < ENOUGH:
        return None
    words = text.split()
    word, count = Counter(words).most_common(1)[0] if words else ("", 0)
    if count >= 20 and count > len(words) * 0.6:
        return f"{word[:20]!r} is {count} of {len(words)} words"
    again = re.search(r"(.{1,60}?)\1{15,}", text[-2000:], re.DOTALL)
    if again and len(again[0]) >= 2 * ENOUGH and again[1].strip(" \n=-_*#.~"):
        return f"{again[1].strip()[:20]!r} comes {len(again[0]) // len(again[1])} times in a row"
    for length, times in ((400, 8), (1600, 4)):
        period = _period(text[-length:])
        if len(text) >= length and period * times <= length:
            return f"its last {length} characters are {period} characters again and again"
    return None


def _period(text: str) -> int:
    """The smallest distance at which the text repeats itself (Knuth, Morris and Pratt's failure function)."""
    borders = [0] * len(text)
    for index in range(1, len(text)):
        border = borders[index - 1]
        while border and text[index] != text[border]:
            border = borders[border - 1]
        borders[index] = border + (text[index] == text[border])
    return len(text) - (borders[-1] if borders else 0)


def _language(text: str) -> str | None:
    """The questions are in English. Code and quoted strings may hold any script."""
    prose = FENCED.sub("", text)
    letters = [c for c in prose if c.isalpha()]
    foreign = [c for c in letters if not unicodedata.name(c, "").startswith(("LATIN", "GREEK", "MICRO"))]
    if len(foreign) >= 8 and len(foreign) > len(letters) * 0.2:
        return f"{len(foreign)} of {len(letters)} letters are of another script than asked in"
    return None
