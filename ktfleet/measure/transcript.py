"""A recorded stream, replayed: JSON lines `{"t": seconds since the request, "raw": text}`.

The first line may say what the HTTP answer was: "status" (default 200) and "retry_after" beside or instead of "raw".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ktfleet.measure.stream import Limits, Reading, Stream
from ktfleet.problem import Problem, Refused

_DO = 'each line is one read of the response: {"t": 0.25, "raw": "data: {...}\\n\\n"}'


def replay(path: Path, limits: Limits | None = None) -> Reading:
    """The reading of one file. Raises Refused when it is no transcript."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        seen = (error.strerror or str(error)) if isinstance(error, OSError) else "no UTF-8"
        raise Refused((Problem(f"--transcript {path}", seen, "a file of JSON lines", _DO),)) from error
    # Not splitlines: a JSON text may hold other line ends than LF.
    lines = [_line(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    head = lines[0] if lines else {}
    stream = Stream(limits, head.get("status"), head.get("retry_after"))
    for line in lines:
        # What was no UTF-8 was recorded with surrogates, as Python's "surrogateescape" has them.
        stream.feed(line["t"], line["raw"].encode("utf-8", "surrogateescape"))
    stream.end()
    return stream.reading()


def _line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("no object")
        read = {"t": data.get("t", 0.0), "raw": data.get("raw", "")}
        if type(read["t"]) not in (int, float) or not 0 <= read["t"] < 1e9:
            raise ValueError(f"t = {data.get('t')!r}")
        if not isinstance(read["raw"], str) or ("raw" not in data and "status" not in data):
            raise ValueError(f"raw = {data.get('raw')!r}")
        read["raw"].encode("utf-8", "surrogateescape")
        status, retry_after = data.get("status"), data.get("retry_after")
        if status is not None and type(status) is not int:
            raise ValueError(f"status = {status!r}")
        return {**read, "status": status, "retry_after": None if retry_after is None else str(retry_after)}
    except (ValueError, RecursionError) as error:
        seen = f"line {number}: {' '.join(str(error).split())[:120]}"
        raise Refused((Problem(f"--transcript {path}", seen, 'an object with "t" and "raw"', _DO),)) from error
