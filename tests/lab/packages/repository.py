"""A flat apt repository in a folder: stub packages, their list, and its signature by a throw-away key."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.errors import require_programs

PROGRAMS = ("dpkg-deb", "gpg", "gpgconf")


@dataclass(frozen=True)
class Stub:
    """One package. files: path on the host -> content; what lies in a bin folder, or begins with #!, is executable."""

    name: str
    version: str
    depends: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    postinst: str = ""

    def build(self, folder: Path) -> Path:
        """The .deb, in `folder`."""
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            control = {"Package": self.name, "Version": self.version, "Architecture": "amd64", "Depends": self.depends}
            control |= {"Maintainer": "lab <lab@example.invalid>", "Description": "a stand-in of the lab"}
            lines = [f"{key}: {value}\n" for key, value in control.items() if value]
            _write(root / "DEBIAN/control", "".join(lines))
            if self.postinst:
                _write(root / "DEBIAN/postinst", f"#!/bin/sh\nset -e\n{self.postinst}\n")
            for path, content in self.files.items():
                _write(root / path.removeprefix("/"), content)
            deb = folder / f"{self.name}_{self.version.replace(':', '%3a')}_amd64.deb"
            _run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(deb))
            return deb


class Key:
    """A throw-away OpenPGP key. `public` is what apt's Signed-By wants: the key, not armoured."""

    def __init__(self, folder: Path) -> None:
        require_programs(PROGRAMS)
        # gpg-agent's socket lies here, and such a path is short.
        self._home = tempfile.TemporaryDirectory(prefix="gpg-")
        self._gpg = ("gpg", "--homedir", self._home.name, "--batch", "--quiet", "--pinentry-mode", "loopback")
        generate = ("--passphrase", "", "--quick-generate-key", "lab <lab@example.invalid>", "ed25519", "sign", "never")
        _run(*self._gpg, *generate)
        self.public = folder / "lab-key.gpg"
        _run(*self._gpg, "--output", str(self.public), "--export")

    def sign(self, release: Path) -> None:
        """InRelease beside a Release file."""
        _run(*self._gpg, "--yes", "--output", str(release.with_name("InRelease")), "--clearsign", str(release))

    def close(self) -> None:
        """End gpg's agent and forget the key."""
        _run("gpgconf", "--homedir", self._home.name, "--kill", "gpg-agent")
        self._home.cleanup()


def publish(folder: Path, origin: str, stubs: tuple[Stub, ...], key: Key) -> None:
    """Make `folder` a repository of these packages; what it held before is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*_amd64.deb"):
        old.unlink()
    entries = []
    for stub in stubs:
        deb = stub.build(folder)
        control = subprocess.run(["dpkg-deb", "--field", str(deb)], capture_output=True, text=True, check=True).stdout
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        entries.append(f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
    packages = folder / "Packages"
    packages.write_text("\n".join(entries))
    digest = hashlib.sha256(packages.read_bytes()).hexdigest()
    release = folder / "Release"
    release.write_text(
        f"Origin: {origin}\nLabel: {origin}\nArchitectures: amd64\nDate: Tue, 01 Dec 2026 00:00:00 UTC\n"
        f"SHA256:\n {digest} {packages.stat().st_size} Packages\n"
    )
    key.sign(release)


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755 if data.startswith(b"#!") else 0o644)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
