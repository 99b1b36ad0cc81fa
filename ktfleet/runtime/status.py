"""What is in effect, told in a file: written by the process whose layers are hooked, read by a check."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ktfleet.runtime.hooks import Overlay

SCHEMA = 1
EVERY_S = 2.0
"""How old the numbers may be."""

COUNTS_EVERY_S = 60.0


def describe(overlay: Overlay) -> dict[str, Any]:
    """The file's content.

    slots: layer -> [experts that were there, experts kept], of all culled passes since the start. clamped: layer -> the
    limit that its kernel was made with. whole_passes: passes in which no expert was left out.
    """
    from ktfleet.runtime.start import FOLDER

    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "folder": FOLDER,
        "active": str(overlay.asked),
        "settings": dataclasses.asdict(overlay.asked),
        "layers": sorted(overlay.layers),
        "clamped": {str(layer): limit for layer, limit in sorted(overlay.arrived.items())},
        "slots": {str(layer): numbers for layer, numbers in sorted(overlay.slots.read().items())},
        "whole_passes": overlay.whole_passes,
        "written": time.time(),
    }


def write(path: Path, content: str) -> None:
    """Whole or not at all. Raises OSError."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(content, encoding="utf-8")
    new.replace(path)


class Reporter:
    """The thread that writes the files. It makes no call to CUDA: see counters.py."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._thread: threading.Thread | None = None
        self._complained: set[str] = set()

    def start(self) -> None:
        """Once, by the first layer: only the process that has layers reports."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ktfleet-status", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        counted = time.monotonic()
        while True:
            self._try(self._overlay.asked.status, self.report)
            if self._overlay.asked.counts is not None and time.monotonic() - counted >= COUNTS_EVERY_S:
                counted = time.monotonic()
                self._try(self._overlay.asked.counts, self.save_counts)
            time.sleep(EVERY_S)

    def report(self) -> None:
        """Write the status. Raises OSError."""
        write(Path(self._overlay.asked.status), json.dumps(describe(self._overlay)))

    def save_counts(self) -> None:
        """Write how often each expert was computed: [1, layers, experts], a layer without experts has zeros."""
        import torch

        asked = self._overlay.asked
        counts = torch.zeros((1, asked.layers, asked.experts), dtype=torch.int64)
        for layer, numbers in self._overlay.counts.read().items():
            counts[0, layer] = torch.tensor(numbers[:-1])
        path = Path(asked.counts or os.devnull)
        new = path.with_name(f".{path.name}.new")
        torch.save({"logical_count": counts}, new)
        new.replace(path)

    def _try(self, path: str, what: Any) -> None:
        """A file that cannot be written stops no server: the check finds none, and says so. Told once."""
        try:
            what()
            self._complained.discard(path)
        except Exception as error:
            if path not in self._complained:
                self._complained.add(path)
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                line = f"{path} cannot be written: seen {reason}, wanted a folder of the server's user; make it"
                print(f"ktfleet overlay: warning: {line}", file=sys.stderr, flush=True)
