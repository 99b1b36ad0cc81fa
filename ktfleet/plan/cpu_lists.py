"""The kernel's two notations for a set of CPUs: the list "0-3,8" and the hexadecimal mask "ff,ffffffff"."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORD_BITS = 32


def ranges(cpus: Iterable[int]) -> str:
    """CPU numbers as a kernel list: 0-3,8,10-11. Empty for no CPU."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs)


def parse(text: str) -> tuple[int, ...]:
    """The CPUs of a kernel list; none when the text is no such list."""
    parts = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?(?:,(\d{1,5})(?:-(\d{1,5}))?)*", text)
    if parts is None:
        return ()
    bounds = [part.partition("-") for part in text.split(",")]
    return tuple(cpu for first, _, last in bounds for cpu in range(int(first), int(last or first) + 1))


def mask(cpus: Iterable[int], bits: int) -> str:
    """The mask as the kernel prints it for `bits` possible CPUs: words of 32 bits, the first one shortened."""
    value = sum(1 << cpu for cpu in set(cpus))
    words = []
    for low in range(0, max(bits, 1), _WORD_BITS):
        digits = -(-min(_WORD_BITS, bits - low) // 4)
        words.append(f"{value >> low & (1 << _WORD_BITS) - 1:0{max(digits, 1)}x}")
    return ",".join(reversed(words))
