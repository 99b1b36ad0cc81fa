"""What a host is told to get: written by the plan, read by the program on the host. It holds no secret."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ktfleet.weights.layout import Layout
from ktfleet.weights.safetensors import Broken, read_json


@dataclass(frozen=True)
class Hub:
    """A hub that speaks Hugging Face's protocol. `endpoint`: its address, without a slash at the end."""

    endpoint: str


@dataclass(frozen=True)
class Copy:
    """Folders that rsync can read: a path of the host, host:path, or rsync://host/module/path.

    shards: converted weights to be copied too; None: they are converted here.
    """

    checkpoint: str
    shards: str | None


@dataclass(frozen=True)
class Converter:
    """The upstream converter: one file of a git repository at a commit, with its sha256, and how it is started."""

    repository: str
    commit: str
    path: str
    sha256: str
    python: str
    threads: int
    input_type: str


@dataclass(frozen=True)
class Job:
    """Where the weights are to lie and where they come from. Folders are absolute paths; sizes are bytes.

    checkpoint_bytes, shards_bytes: what each is known to take; the latter 0 when nothing is converted.
    index_sha256: of the checkpoint's index, where the recipe pins it.
    """

    repository: str
    revision: str
    checkpoint: str
    checkpoint_bytes: int
    index_sha256: str | None
    source: Hub | Copy
    shards: str | None = None
    shards_bytes: int = 0
    layout: Layout | None = None
    converter: Converter | None = None

    def to_json(self) -> str:
        """The text of the job's file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def work(self) -> Path:
        """The folder of this model: the lock and unfinished folders lie there too."""
        return Path(self.checkpoint).parent


def load(path: Path) -> Job:
    """Read a job's file. Raises Broken, OSError."""
    raw = read_json(path)
    try:
        return _job(raw)
    except (KeyError, TypeError) as error:
        raise Broken(f"a job without {error}", "what deploy.py wrote") from None


def _job(raw: dict[str, Any]) -> Job:
    source = raw.pop("source")
    layout, converter = raw.pop("layout"), raw.pop("converter")
    return Job(
        **raw,
        source=Hub(**source) if "endpoint" in source else Copy(**source),
        layout=Layout(**layout) if layout else None,
        converter=Converter(**converter) if converter else None,
    )
