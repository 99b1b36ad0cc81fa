"""What a host is told to serve, and what a running server was started from. It holds no secret."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Job:
    """One server.

    argv, environment: its command, and all of its variables: it inherits none. cpus: where its unit lets it run, as a
    kernel list. url: where it answers. model: its name there. layers: of its experts. ready_s: seconds until it must
    have answered. stack: the
    symlink to its packages. watched: name -> files that make it another server when they change. card_mib: what it
    takes of the card; None: it has none.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cpus: str
    url: str
    model: str
    layers: int
    ready_s: int
    stack: str
    watched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    card_mib: int | None = None

    def to_json(self) -> str:
        """The text of the job's file."""
        return json.dumps(asdict(self), indent=1) + "\n"


def parse(text: str) -> Job:
    """A job's text. Raises ValueError, TypeError, KeyError."""
    raw = json.loads(text)
    watched = {name: tuple(paths) for name, paths in raw["watched"].items()}
    return Job(**{**raw, "argv": tuple(raw["argv"]), "watched": watched})


def identity(job: Job, link: str | None, digest: Callable[[str], str | None]) -> dict[str, str]:
    """What makes a server this one: thing -> its digest or text. A server that was started from other ones is another.

    link: what the stack's symlink says. digest: a file's sha256, None without one.
    """
    return {
        "command line": _sha256(job.argv),
        "environment": _sha256(sorted(job.environment.items())),
        "CPUs": job.cpus,
        "packages": link or "none",
        **{name: _sha256([digest(path) for path in paths]) for name, paths in job.watched.items()},
    }


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
