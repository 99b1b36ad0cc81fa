"""The locked stack, really installed: about 10 GB from the index, for one session, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktfleet.locks import path as lock

NEEDED = 24_000_000_000
"""Bytes that both installations, uv's cache of them and the joined objects of sgl_kernel take at most."""

AIPERF = Path(__file__).with_name("aiperf.txt")

HASHED = ("--require-hashes", "--only-binary", ":all:", "--requirement")
"""What follows is a lock. Nothing is built here."""


def uv(*arguments: str | Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run the controller's uv. The cache lies beside what is installed from it: each file is then there only once."""
    from uv import find_uv_bin

    surroundings = {**os.environ, "UV_CACHE_DIR": str(cache), "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    return subprocess.run([find_uv_bin(), *arguments], capture_output=True, text=True, env=surroundings)


def installed(folder: Path, locked: Path) -> Path:
    """The python of a new environment with exactly what is locked."""
    environment, cache = folder / "environment", folder / "cache"
    python = environment / "bin" / "python"
    for arguments in (
        ("venv", "--python", sys.executable, environment),
        ("pip", "install", "--python", python, *HASHED, locked),
    ):
        done = uv(*arguments, cache=cache)
        assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with enough room, which is deleted afterwards."""
    folder = tmp_path_factory.mktemp("stack")
    free = shutil.disk_usage(folder).free
    if free < NEEDED:
        pytest.skip(
            f"too little room for the stack in {folder}: seen {free / 1e9:.0f} GB, wanted {NEEDED / 1e9:.0f} GB"
        )
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def stack_python(request: pytest.FixtureRequest) -> Path:
    """The python of an environment with the locked stack; KTFLEET_STACK_PYTHON names one that is there already."""
    named = os.environ.get("KTFLEET_STACK_PYTHON")
    if named:
        return Path(named)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not lock(version).is_file():
        pytest.skip(f"no lock for this Python: seen {version}, wanted 3.11 or 3.12")
    folder: Path = request.getfixturevalue("room")
    return installed(folder, lock(version))


@pytest.fixture(scope="session")
def target_312(room: Path) -> Path:
    """The packages for Ubuntu 24.04's Python, which need not be the one here."""
    folder = room / "cp312"
    foreign = ("--target", folder, "--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_35")
    done = uv("pip", "install", *foreign, *HASHED, lock("3.12"), cache=room / "cache")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def aiperf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The python of an environment with aiperf (0.9 GB), which is deleted afterwards."""
    folder = tmp_path_factory.mktemp("aiperf")
    yield installed(folder, AIPERF)
    shutil.rmtree(folder, ignore_errors=True)
