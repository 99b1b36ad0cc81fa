"""Small environments of Python with invented packages, installed as an installer would."""

from __future__ import annotations

import sys
import venv
from collections.abc import Mapping
from pathlib import Path


class Environment:
    """A virtual environment without pip."""

    def __init__(self, folder: Path) -> None:
        venv.EnvBuilder(symlinks=True).create(folder)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def install(self, name: str, files: Mapping[str, str], version: str = "1.0") -> Path:
        """Put a distribution there: its files, by path, and its metadata. The folder of the metadata."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        record = []
        for path, text in files.items():
            place = self.site / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            record.append(f"{path},,{len(text.encode())}\n")
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("".join(record) + f"{info.name}/RECORD,,\n")
        return info

    def lock(self, *names: str) -> Path:
        """A hashed requirements file of version 1.0 of each."""
        path = self.folder / "lock.txt"
        path.write_text("# a comment\n" + "".join(f"{name}==1.0 \\\n    --hash=sha256:{'0' * 64}\n" for name in names))
        return path
