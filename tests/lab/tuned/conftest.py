"""The machine that is deployed to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.image import Image
from tests.lab.machine import Machine


@pytest.fixture(scope="package")
def machine(lab_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A freshly installed machine, shared by the modules of this folder."""
    with Machine(tmp_path_factory.mktemp("tuned"), lab_image) as running:
        yield running
