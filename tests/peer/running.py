"""The server as a fixture of tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ktfleet.measure.ask import Server
from tests.peer import model


@contextmanager
def serving(folder: Path, answers: Mapping[str, Sequence[str]], parallel: int = 1) -> Iterator[Server]:
    """llama.cpp's server with a model that gives these answers."""
    path = folder / "model.gguf"
    model.write(path, answers)
    command = [sys.executable, "-m", "tests.peer.serve", str(path), str(parallel)]
    log = folder / "server.log"
    with log.open("w") as said, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("http"), log.read_text()[-2000:]
            yield Server(url)
        finally:
            process.stdin.close()
            process.wait(20)
