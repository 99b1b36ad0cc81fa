"""dpkg's status and the locks of dpkg and apt."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from ktfleet.host.probe import packages
from tests.trees import DPKG_STATUS, put
from tests.unit.host.probed import state

STATUS = "/var/lib/dpkg/status"


def package(name: str, status: str = "install ok installed", version: str = "1", architecture: str = "amd64") -> str:
    return (
        f"Package: {name}\nStatus: {status}\nArchitecture: {architecture}\nVersion: {version}\n"
        "Description: Package: no\n Status: install ok unpacked\n"
    )


def write(tree: Path, *packages: str) -> None:
    put(tree, STATUS, "\n".join([DPKG_STATUS, *packages]))


def test_installed_packages_that_match(tree: Path) -> None:
    """Removed ones have left their settings only; one that waits for a trigger is there."""
    write(
        tree,
        package("nvidia-driver", version="570.1-1"),
        package("nvidia-kernel-common", "hold ok triggers-awaited", "2:1+b1"),
        package("xnvidia-y"),
        package("nvidia-removed", "deinstall ok config-files"),
        package("cuda-all", architecture="all"),
    )
    asked = ["nvidia-*", "cuda-*", "irqbalance", "systemd-timesyncd"]
    assert state(tree, packages=asked).packages.installed == {
        "irqbalance": "1.9.2-1",
        "nvidia-driver": "570.1-1",
        "nvidia-kernel-common": "2:1+b1",
        "cuda-all": "1",
    }
    assert state(tree).packages.installed == {}


def test_another_architecture_is_named(tree: Path) -> None:
    write(tree, package("libnvidia-x", version="1"), package("libnvidia-x", version="2", architecture="i386"))
    installed = state(tree, packages=["libnvidia-*"]).packages.installed
    assert installed == {"libnvidia-x": "1", "libnvidia-x:i386": "2"}


def test_what_is_half_installed(tree: Path) -> None:
    broken = ("install reinstreq half-installed", "install ok unpacked", "install ok half-configured")
    write(
        tree,
        *(package(f"p{n}", status) for n, status in enumerate(broken)),
        package("t", "install ok triggers-pending"),
    )
    seen = state(tree, packages=["p*"]).packages
    assert (seen.unfinished, seen.installed) == (("p0", "p1", "p2"), {})


def test_an_interrupted_dpkg(tree: Path) -> None:
    """Its steps are files named by numbers; tmp.i is always about."""
    put(tree, "/var/lib/dpkg/updates/tmp.i", "")
    assert state(tree).packages.interrupted is False
    put(tree, "/var/lib/dpkg/updates/0003", "")
    assert state(tree).packages.interrupted is True


def test_without_dpkg(tmp_path: Path) -> None:
    seen = state(tmp_path, packages=["*"])
    assert (seen.packages.installed, seen.packages.interrupted) == ({}, None)
    assert seen.unreadable[STATUS] == seen.unreadable["/var/lib/dpkg/updates"] == "no such file"


HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('locked', flush=True); input()"
)


def test_who_holds_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of this process does not count, nor does a file that nobody locks or that is missing."""
    free, held, mine = (put(tmp_path, name, "") for name in ("/free", "/held", "/mine"))
    monkeypatch.setattr(packages, "LOCKS", (str(free), str(tmp_path / "none"), str(mine), str(held)))
    with mine.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert state(Path("/")).packages.locked_by is None
    command = [sys.executable, "-c", HOLD, held]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
        assert state(Path("/")).packages.locked_by == f"{name} (pid {holder.pid})"
        holder.communicate(b"\n")
    assert state(Path("/")).packages.locked_by is None
