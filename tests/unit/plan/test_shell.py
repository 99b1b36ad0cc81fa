"""What shell commands have in common: as a shell runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ktfleet.plan.shell import make_folder

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("umask", ["022", "027", "077"])
def test_a_folder_is_readable_whatever_umask_root_has(tmp_path: Path, umask: str) -> None:
    made = tmp_path / "o'ne" / "two"
    command = f"umask {umask} && {make_folder(str(made))} && touch '{tmp_path}/after'"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    assert [oct(folder.stat().st_mode & 0o777) for folder in (made.parent, made)] == ["0o755", "0o755"]
    left = (tmp_path / "after").stat().st_mode & 0o777
    assert left == 0o666 & ~int(umask, 8), "the rest of the command keeps the umask"


def test_nobody_makes_a_folder_otherwise() -> None:
    """One that root's umask shuts is seen on a hardened machine only, by a server that cannot start."""
    sources = [path for folder in ("ktfleet", "tasks", "checks") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 100
    makers = {str(path.relative_to(ROOT)) for path in sources if re.search(r"\bmkdir\b(?!\()", path.read_text())}
    assert makers == {"ktfleet/plan/shell.py"}
