"""Fixtures of tests that boot a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.image import Image, image
from tests.lab.machine import Machine
from tests.lab.topology import LAB, Topology

Boot = Callable[..., Machine]


@pytest.fixture(scope="session")
def lab_image() -> Image:
    """The Debian image that most tests boot, built when the cache has none."""
    return image()


@pytest.fixture
def boot(tmp_path: Path) -> Iterator[Boot]:
    """A function that boots a fresh machine; all of a test's machines are stopped at its end."""
    with ExitStack() as running:

        def booted(topology: Topology = LAB, suite: str = "bookworm", name: str = "lab") -> Machine:
            return running.enter_context(Machine(tmp_path / name, image(suite), topology, name))

        yield booted
