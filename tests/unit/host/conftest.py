"""Captured trees for the tests of the probe, in memory: a tree is hundreds of small files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trees import write_tree
from tests.unit.host.probed import MEMORY, SMALL


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Replaces pytest's."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def workstation() -> Iterator[Path]:
    """The default tree: 80 CPUs. Only read it."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield write_tree(Path(folder))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree to break."""
    return write_tree(tmp_path, **SMALL)
