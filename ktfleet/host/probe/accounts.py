"""Users and groups, and who owns a folder."""

from __future__ import annotations

import os
import stat
from functools import partial

from ktfleet.host.probe.reader import Reader
from ktfleet.host.probe.values import ReadError

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Iterable, Sequence
    from typing import Any

PASSWD, GROUP = "/etc/passwd", "/etc/group"


def parse_users(text: str, asked: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Lines of passwd(5) whose name or number is asked for."""
    rows = (line.split(":") for line in text.splitlines())
    found = (row for row in rows if len(row) == 7 and (row[0] in asked or row[2] in asked))
    return {row[0]: {"uid": _id(row[2]), "gid": _id(row[3]), "home": row[5], "shell": row[6]} for row in found}


def parse_groups(text: str, asked: Sequence[str]) -> dict[str, int]:
    """Lines of group(5) whose name or number is asked for."""
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: _id(row[2]) for row in rows if len(row) == 4 and (row[0] in asked or row[2] in asked)}


def _id(text: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise ReadError("not a number: " + ascii(text[:40]))
    return int(text)


def read_accounts(reader: Reader, asked: Sequence[str]) -> dict[str, Any]:
    """The asked users and groups, by name or number; None with a reason where they could not be read."""
    return {
        "users": reader.value(PASSWD, partial(parse_users, asked=asked)),
        "groups": reader.value(GROUP, partial(parse_groups, asked=asked)),
    }


def read_folders(reader: Reader, paths: Iterable[str]) -> dict[str, dict[str, Any] | None]:
    """Owner and mode of each folder; None: there is none, or a reason is told."""
    return {path: reader.find(path, partial(_folder, reader, path)) for path in paths}


def _folder(reader: Reader, path: str) -> dict[str, Any]:
    found = os.lstat(reader.place(path))
    if not stat.S_ISDIR(found.st_mode):
        raise ReadError("not a folder")
    return {"uid": found.st_uid, "gid": found.st_gid, "mode": "%04o" % stat.S_IMODE(found.st_mode)}
