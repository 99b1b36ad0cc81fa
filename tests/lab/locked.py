"""Wheels of a lock, for Debian 12's Python: fetched once by pip, kept beside the lab's images."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from ktfleet import locks
from tests.lab.deploying import ROOT
from tests.lab.image import cache_folder

PYTHON = "3.11"
STACK, CONTROLLER = locks.path(PYTHON), ROOT / "requirements.txt"
PLATFORMS = ("manylinux_2_35", "manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""pip takes each name by itself. Debian 12 has glibc 2.36."""

ENTRY = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(?:.*\n)(?:[ #].*\n?)*", re.M)
NEEDED_BY = re.compile(r"^ {4}# {1,3}(?:via )?([a-z0-9][a-z0-9.-]*)$", re.M)


@cache
def entries(lock: Path = STACK) -> dict[str, str]:
    """A package's name -> its lines of a lock: version, hashes, who needs it."""
    return {match[1]: match[0] for match in ENTRY.finditer(lock.read_text())}


def lines(*names: str, lock: Path = STACK) -> str:
    """A lock of these packages alone."""
    return "".join(entries(lock)[name] for name in names)


def with_all_it_needs(name: str) -> str:
    """A lock of a package and everything that the server's own has because of it."""
    found = {name}
    while more := {other for other, text in entries().items() if found.intersection(NEEDED_BY.findall(text))} - found:
        found |= more
    return lines(*sorted(found))


def fetch(wanted: str) -> list[Path]:
    """The wheels of a lock. Raises CalledProcessError; pip says why on the standard error."""
    folder = cache_folder() / "wheels" / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            requirements, made = Path(scratch, "lock.txt"), Path(scratch, "wheels")
            requirements.write_text(wanted)
            _download(requirements, made)
            if not folder.is_dir():
                made.rename(folder)
    return sorted(folder.glob("*.whl"))


def _download(requirements: Path, folder: Path) -> None:
    target = ["--python-version", PYTHON, "--implementation", "cp"]
    target += [word for abi in (f"cp{PYTHON.replace('.', '')}", "abi3", "none") for word in ("--abi", abi)]
    target += [word for name in PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", *target]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(requirements)]
    subprocess.run(command, check=True)
