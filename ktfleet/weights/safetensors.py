"""The header of a safetensors file: read without the data, believed in nothing.

The format: 8 bytes of length (little endian), that many bytes of JSON, then the data, without a hole.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **{"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4},
}
"""dtype -> bits of one element."""

MOST_JSON = 100_000_000
"""Bytes: the format's own limit for a header."""

MOST_ELEMENTS = 2**48
MOST = 2**60
"""Of any number in a header: a file cannot be as long."""


class Broken(Exception):
    """A file that is not what it has to be: what was seen, and what is wanted."""

    def __init__(self, seen: str, wanted: str) -> None:
        super().__init__(seen)
        self.seen, self.wanted = seen, wanted


class Entry(NamedTuple):
    """One tensor. `begin` and `end` are offsets in the file. No dataclass: there are 132,096 of them."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def shown(text: str, most: int = 120) -> str:
    """A name from a file, or what a program said, for a line of output: nothing unprintable, not too long."""
    plain = text if text.isascii() and text.isprintable() else ascii(text)
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."


def open_regular(path: Path) -> BinaryIO:
    """A regular file, not a symlink: what it leads to may change. Raises Broken, OSError."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        if path.is_symlink():
            raise Broken(f"a symlink to {shown(str(path.readlink()))}", "a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Broken("something that is no regular file", "a regular file")
    return os.fdopen(handle, "rb")


def parse(text: bytes) -> dict[str, Any]:
    """A JSON object without a repeated key. Raises Broken."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Broken(f"broken JSON ({shown(str(error))})", "a JSON object") from None
    if not isinstance(found, dict):
        raise Broken(f"JSON that is a {type(found).__name__}", "a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Broken(f"{shown(twice)} twice", "every key once")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A file with one JSON object, of a bearable size. Raises Broken, OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_JSON:
            raise Broken(f"{size} bytes", f"at most {MOST_JSON} bytes of JSON")
        return parse(file.read(MOST_JSON + 1))


def read_header(path: Path) -> dict[str, Entry]:
    """Every tensor of the file, in the order of their data. Raises Broken, OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 10:
            raise Broken(f"{size} bytes", "a safetensors file")
        if length > min(size - 8, MOST_JSON):
            raise Broken(f"a header of {length} bytes in a file of {size}", "a header that fits the file")
        text = file.read(length)
    header = parse(text)
    header.pop("__metadata__", None)
    start = 8 + length
    entries = {name: _entry(name, raw, start) for name, raw in header.items()}
    ordered = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    _check_places(ordered, start, size)
    return ordered


def _entry(name: str, raw: Any, start: int) -> Entry:
    try:
        dtype, shape, (begin, end) = raw["dtype"], raw["shape"], raw["data_offsets"]
        if dtype not in BITS or len(raw) != 3:
            raise ValueError
        for number in (*shape, begin, end):
            if type(number) is not int or not 0 <= number < MOST:
                raise ValueError
    except (KeyError, TypeError, ValueError):
        raise Broken(f"{shown(name)} described as {shown(repr(raw))}", "dtype, shape and data_offsets") from None
    elements = 1
    for side in shape:
        elements *= side
        if elements > MOST_ELEMENTS:
            raise Broken(f"{shown(name)} of more than {MOST_ELEMENTS} elements", "a tensor that fits a file")
    if end - begin != -(-elements * BITS[dtype] // 8):
        size = elements * BITS[dtype] // 8
        raise Broken(f"{shown(name)} at {begin}-{end}", f"{size} bytes for {dtype} {list(shape)}")
    return Entry(dtype, tuple(shape), start + begin, start + end)


def _check_places(ordered: dict[str, Entry], start: int, size: int) -> None:
    """The data follow one another without overlap or hole, to the end of the file."""
    at, before = start, "the header"
    for name, entry in ordered.items():
        if entry.begin != at:
            how = "overlaps" if entry.begin < at else "leaves a hole after"
            raise Broken(f"{shown(name)} {how} {shown(before)}", "tensors one after another")
        at, before = entry.end, name
    if at != size:
        raise Broken(f"{'truncated, ' if size < at else ''}{size} bytes", f"{at} bytes, as its header says")
