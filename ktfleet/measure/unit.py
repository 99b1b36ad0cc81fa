"""The server's unit, as the kernel sees it: its cgroup. Only the standard library: it runs on the host."""

from __future__ import annotations

from pathlib import Path


def processes(cgroup: str) -> list[int]:
    """Those in the cgroup and below it. None when there is no such cgroup: no unit runs. Raises OSError."""
    found: list[int] = []
    for path in sorted(Path(cgroup).glob("**/cgroup.procs")):
        found += map(int, path.read_text(encoding="ascii").split())
    return found


def busy(cgroup: str) -> bool:
    """Whether anything runs in it, as far as that can be read."""
    try:
        return bool(processes(cgroup))
    except OSError:
        return False
