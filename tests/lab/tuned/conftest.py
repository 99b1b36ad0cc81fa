"""The machine that is deployed to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.lab.image import Image
from tests.lab.machine import Machine

DATA_DISK_BYTES = 4 * 1024**3
"""A sparse file. The weights are small, but room is kept free on a data disk."""


@pytest.fixture(scope="package")
def machine(lab_image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A freshly installed machine with an empty data disk beside it, shared by the modules of this folder."""
    folder = tmp_path_factory.mktemp("tuned")
    disk = folder / "data.img"
    with disk.open("wb") as file:
        file.truncate(DATA_DISK_BYTES)
    subprocess.run(["/sbin/mkfs.ext4", "-q", "-L", "models", str(disk)], check=True)
    with Machine(folder, lab_image, data_disk=disk) as running:
        yield running
