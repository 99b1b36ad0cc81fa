"""What of a start can be tried while the old server still runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.server.job import Job

UNIT = "ktfleet-server.service"
NVIDIA_SMI = "/usr/bin/nvidia-smi"
EXTENSION = "SGLANG_EXTERNAL_MODEL_PACKAGE"
"""The package that sglang imports in every one of its processes; without it the server ends at its start."""

LIMIT_S = 120
_FIND = "import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))"


def problems(job: Job) -> Iterator[Problem]:
    """Everything that would stop the new server. Asked as root, on the host."""
    yield from _packages(job)
    if job.card_mib is not None and Path(NVIDIA_SMI).exists():
        yield from card(job.card_mib, _asked, _unit_of)


def _packages(job: Job) -> Iterator[Problem]:
    """The module that is started, and what it is told to import, as the server would find them."""
    for name in filter(None, (job.argv[2].partition(".")[0], job.environment.get(EXTENSION))):
        try:
            done = subprocess.run(
                (job.argv[0], "-c", _FIND, name),
                env=dict(job.environment),
                cwd="/",
                capture_output=True,
                timeout=LIMIT_S,
                check=False,
            )
            seen = "not there" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            seen = str(error)[:160]
        if seen:
            do = "install the stack that has it, or choose a recipe that needs no overlay"
            yield Problem(f"the server's package {name}", seen, f"importable by {job.argv[0]}", do)


@dataclass(frozen=True)
class Holder:
    """A process that has memory of the card, in MiB."""

    pid: int
    name: str
    mib: int


def card(needed_mib: int, ask: Callable[[str], str], unit_of: Callable[[int], str]) -> Iterator[Problem]:
    """Whether the card has room once our own server is gone. Unread: no word, the start itself will tell."""
    free = [int(word) for word in re.findall(r"^\s*(\d+)\s*$", ask("--query-gpu=memory.free"), re.MULTILINE)]
    rows = re.findall(
        r"^\s*(\d+),\s*(.*?),\s*(\d+)\s*$", ask("--query-compute-apps=pid,process_name,used_memory"), re.MULTILINE
    )
    holders = [Holder(int(pid), name.rpartition("/")[2], int(mib)) for pid, name, mib in rows]
    ours = sum(holder.mib for holder in holders if unit_of(holder.pid) == UNIT)
    if not free or free[0] + ours >= needed_mib:
        return
    others = [holder for holder in holders if unit_of(holder.pid) != UNIT]
    held = ", ".join(f"{holder.name} (pid {holder.pid}) has {holder.mib}" for holder in others) or "nobody it names"
    seen = f"{free[0] + ours} MiB free; {held}"
    yield Problem("the card has no room for the server", seen, f"{needed_mib} MiB", "stop what holds it")


def _asked(query: str) -> str:
    command = (NVIDIA_SMI, query, "--format=csv,noheader,nounits")
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _unit_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text().strip().rpartition("/")[2]
    except OSError:
        return ""
