"""Files that pyinfra uploads: those whose digest on the host differs, each under a temporary name first."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from shlex import join

from pyinfra import host
from pyinfra.api import FactBase, FileUploadCommand, StringCommand

from ktfleet.plan.shell import make_folder
from ktfleet.pyinfra_api.operations import Commands


def place(wanted: Mapping[str, bytes | Path], mode: str = "0644") -> Commands:
    """Upload what differs: place on the host -> a file here, or its content. All of them in one folder."""
    there = host.get_fact(Digests, tuple(wanted)) or {}
    differing = {path: content for path, content in wanted.items() if there.get(path) != _digest(content)}
    if not differing:
        return
    yield StringCommand(make_folder(next(iter(differing)).rpartition("/")[0]))
    for path, content in differing.items():
        source = BytesIO(content) if isinstance(content, bytes) else str(content)
        yield FileUploadCommand(source, f"{path}.new", remote_temp_filename=host.get_temp_filename(path))
    # What runs as the service's user has to be readable by it.
    moves = (f"{join(('chmod', mode, f'{path}.new'))} && {join(('mv', f'{path}.new', path))}" for path in differing)
    yield StringCommand(" && ".join(moves))


def _digest(content: bytes | Path) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.read_bytes()).hexdigest()


class Digests(FactBase[dict[str, str]]):
    """The sha256 of each file that is there, by path."""

    def command(self, paths: tuple[str, ...]) -> str:
        """Missing files are no error."""
        return f"sha256sum {join(paths)} 2>/dev/null || true"

    def process(self, output: list[str]) -> dict[str, str]:
        """Lines of sha256sum(1)."""
        lines = (re.fullmatch(r"([0-9a-f]{64})  (/\S+)", line) for line in output)
        return {line[2]: line[1] for line in lines if line}
