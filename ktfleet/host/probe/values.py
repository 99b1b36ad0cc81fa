"""Reading single values out of text, and why one could not be had."""

from __future__ import annotations

import errno
import os
import re

MISSING = "no such file"
NOT_A_LINK = "not a symlink"
REASONS = {
    errno.ENOENT: MISSING,
    errno.ENOTDIR: MISSING,
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "symlink loop",
    errno.EINVAL: NOT_A_LINK,
}


class ReadError(ValueError):
    """Why a value could not be had; the text is what `unreadable` shows."""


def why(error: Exception) -> str:
    """The reason of an error, in words that do not depend on the machine's language."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return REASONS.get(error.errno) or os.strerror(error.errno).lower()


def seen(text: str) -> str:
    """The beginning of a text that was not understood, in ASCII."""
    return "seen " + ascii(text[:40])


def parse_line(text: str) -> str:
    """Stripped text that must not be empty."""
    if not text.strip():
        raise ReadError("empty")
    return text.strip()


def parse_int(text: str) -> int:
    """A decimal integer, as the kernel prints it."""
    if not re.fullmatch("-?[0-9]{1,18}", text.strip()):
        raise ReadError("not a number: " + seen(text.strip()))
    return int(text)


def parse_ints(text: str) -> list[int]:
    """Decimal integers between blanks, at least one."""
    return [parse_int(word) for word in parse_line(text).split()]


def parse_count(text: str) -> int:
    """A number that cannot be negative, small enough to be multiplied into bytes."""
    if not re.fullmatch("[0-9]{1,12}", text.strip()):
        raise ReadError("not a count: " + seen(text.strip()))
    return int(text)


def parse_flag(text: str) -> bool:
    """0 or 1."""
    if text.strip() not in ("0", "1"):
        raise ReadError("neither 0 nor 1: " + seen(text.strip()))
    return text.strip() == "1"


def parse_hex(text: str) -> str:
    """A number as sysfs prints it for PCI ("0x10de"), without the 0x."""
    match = re.fullmatch("0x([0-9a-f]{1,8})", text.strip())
    if not match:
        raise ReadError("not a hexadecimal number: " + seen(text.strip()))
    return match[1]
