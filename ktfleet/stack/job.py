"""What a host is told to install: written by the plan, read by the program on the host."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One environment. All but index, wheels and mirror are absolute paths on the host.

    folder: of the environment; its name stands for everything in it. current: the symlink to the one in use.
    python: the path of the system's interpreter, or the version that uv has to get one of, from python_mirror if given.
    index: of packages; None: uv's own, unless there are `wheels`, a folder or page of them.
    """

    folder: str
    current: str
    lock: str
    lock_sha256: str
    uv: str
    cache: str
    pythons: str
    python: str
    index: str | None
    wheels: str | None
    python_mirror: str | None

    @property
    def managed(self) -> bool:
        """Whether the interpreter is one that uv gets."""
        return not self.python.startswith("/")

    @property
    def complete(self) -> str:
        """The file that is written last."""
        return f"{self.folder}/{COMPLETE}"

    @property
    def name(self) -> str:
        """What it holds."""
        return self.folder.rpartition("/")[2]

    def to_json(self) -> str:
        """The text of the job's file."""
        return json.dumps(asdict(self), indent=1) + "\n"


COMPLETE = ".complete"


def load(path: Path) -> Job:
    """Read a job's file. Raises OSError, ValueError, TypeError."""
    return Job(**json.loads(path.read_text(encoding="utf-8")))
