"""Folders that are being filled: one worker at a time, room for all of it, and a name only when proven."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ktfleet.problem import Problem
from ktfleet.weights import manifest
from ktfleet.weights.contents import File

PARTIAL = ".partial"
LOCK = ".ktfleet.lock"
MARGIN = 2 * 1024**3
"""Bytes that stay free: the file system's own needs, and whatever else lies there."""


class Failed(Exception):
    """The work ends here, with these problems."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def partial(folder: Path) -> Path:
    """Where a folder is filled before it gets its name."""
    return folder.with_name(folder.name + PARTIAL)


@contextmanager
def only_one(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder's lock. The kernel gives it back whatever happens. Raises Failed, OSError."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "somebody"
            do = f"wait for it to end (`fuser -v {folder / LOCK}` there shows it)"
            raise Failed(Problem("another run works on these weights", holder, "nobody", do)) from None
        os.ftruncate(handle, 0)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")  # noqa: UP017 - Python 3.10
        os.pwrite(handle, f"{what}, pid {os.getpid()} since {now}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def require_room(folder: Path, parts: Mapping[str, int]) -> None:
    """`parts`: what is still to come -> bytes. Raises Failed when it does not fit."""
    free = shutil.disk_usage(folder).free
    wanted = sum(parts.values())
    if wanted and free < wanted + MARGIN:
        each = ", ".join(f"{gb(size)} for {name}" for name, size in parts.items() if size)
        do = "free some, or use a larger disk"
        raise Failed(
            Problem(f"too little free space on {folder}", gb(free), f"{gb(wanted + MARGIN)} ({each} to come)", do)
        )


def gb(size: int) -> str:
    """Bytes as people write disks' sizes."""
    return f"{size / 1e9:.1f} GB"


def finish(made: Path, folder: Path, files: Mapping[str, File], hashes: Mapping[str, str], about: Any) -> None:
    """Give a proven folder its name. What has the name is complete, whatever happens now. Raises OSError."""
    manifest.write(made, files, hashes, about)
    _sync(made)
    made.rename(folder)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
