"""What the caller asked for: kernel parameters, kernel files, small files, the record of earlier values."""

from __future__ import annotations

import json
import re
from functools import partial

from ktfleet.host.probe.reader import MAGIC, NO_MATCH, Reader
from ktfleet.host.probe.values import MISSING, ReadError, seen

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Iterable
    from typing import Any

TEXT_LIMIT = 4096


def _shallow(value: Any, levels: int = 8) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_shallow(child, levels - 1) for child in children)


def parse_before(text: str) -> dict[str, Any]:
    """The record from before our first change: a JSON object that strict JSON can carry."""
    try:
        record = json.loads(text)
        json.dumps(record, allow_nan=False)
    except (ValueError, RecursionError):
        raise ReadError("broken JSON: " + seen(text)) from None
    if not isinstance(record, dict) or not _shallow(record):
        raise ReadError("not a record: " + seen(text))
    return record


def read_texts(reader: Reader, paths: Iterable[str]) -> dict[str, str | None]:
    """Stripped text of small files."""

    def read(path: str) -> str:
        return reader.data(path, TEXT_LIMIT, cut=True).decode("utf-8", "replace").strip()

    return {path: reader.get(path, partial(read, path)) for path in paths}


def read_sysctl(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """Kernel parameters by name; tabs between numbers become spaces."""

    def read(name: str) -> str:
        return re.sub(r"\t+", " ", reader.text(sysctl_path(name)).strip())

    values = ((name, reader.get(name, partial(read, name))) for name in names)
    return {name: value for name, value in values if value is not None}


def sysctl_path(name: str) -> str:
    """The file of a name as sysctl(8) reads it: dots and slashes swap, unless a slash comes first."""
    first = re.search("[./]", name)
    swapped = first is not None and first[0] == "."
    return "/proc/sys/" + (name.translate({46: "/", 47: "."}) if swapped else name)


def read_sysfs(reader: Reader, patterns: Iterable[str]) -> dict[str, str]:
    """Stripped text of every matching path; a pattern without any gets a reason."""
    texts: dict[str, str] = {}
    for pattern in patterns:
        found = reader.matching(pattern, lambda path: reader.text(path).strip())
        texts.update(found)
        if not found and pattern not in reader.reasons:
            reader.note(pattern, NO_MATCH if MAGIC.search(pattern) else MISSING)
    return texts
