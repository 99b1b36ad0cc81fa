"""What config.py arranges: runs in which nothing was done do not end well, and bytecode is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYINFRA = Path(sys.executable).with_name("pyinfra")


def pyinfra(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYINFRA, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_no_wait_is_refused() -> None:
    done = pyinfra("-y", "--no-wait", "@local", "deploy.py")
    assert done.returncode == 1
    assert "--no-wait hides failed hosts: seen --no-wait, wanted a run that can fail; leave it out" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [
    ("--limit", "ws99", "inventory/ws.py", "deploy.py"),
    ("inventory/wss.py", "deploy.py"),
    ("--limit", "ws99", "inventory/ws.py", "checks/drift.py"),
])  # fmt: skip
def test_zero_hosts_fail(arguments: tuple[str, ...]) -> None:
    done = pyinfra("-y", *arguments)
    assert done.returncode == 1
    assert done.stderr.endswith("no host was touched: seen 0 hosts, wanted at least one; "
                                "check --limit and the inventory's path\n")  # fmt: skip


def test_looking_at_the_inventory_needs_no_host() -> None:
    assert pyinfra("inventory/ws.py", "debug-inventory").returncode == 0


@pytest.mark.parametrize("forbidden", [False, True])
def test_bytecode_is_kept_unless_the_user_forbids_it(tmp_path: Path, forbidden: bool) -> None:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1" if forbidden else ""
    subprocess.run([PYINFRA, "inventory/ws.py", "debug-inventory"], cwd=ROOT, env=environment, check=True)
    assert bool(list(tmp_path.rglob("guard.*.pyc"))) is not forbidden
