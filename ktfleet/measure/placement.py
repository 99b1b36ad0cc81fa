"""Where the running server's threads and memory are: its threads' CPUs, its memory's nodes, the card's interrupts.

It decides nothing and never raises: what could not be read is told. Nothing is written and no program is started. Only
the standard library: it runs on the host. numa_maps and smaps_rollup of another user's process need root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ktfleet.measure.unit import processes

SCHEMA = 1
WORKER = re.compile(r"numa_\d+_[mt]_\d+")
"""kt-kernel's names of its threads: numa_NODE_m_0 distributes and computes, numa_NODE_t_I computes."""
ON_NODE = re.compile(r"N(\d+)=(\d+)")
HUGETLB = "/anon_hugepage"
"""The file that numa_maps names for anonymous memory out of the pool of huge pages."""


@dataclass(frozen=True)
class Order:
    """server: the cgroup of the server's unit. root: below which proc/ and sys/ are read."""

    server: str = "/sys/fs/cgroup/system.slice/ktfleet-server.service"
    root: str = "/"


def measure(order: Order) -> dict[str, Any]:
    """Everything, or why not."""
    root = Path(order.root)
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "why": "", "processes": []}
    record["interrupts"], record["interrupts_why"] = _interrupts(root / "proc")
    try:
        found = processes(str(root / order.server.lstrip("/")))
    except (OSError, ValueError) as error:
        return {**record, "why": _why(error)}
    if not found:
        return {**record, "why": "no server runs"}
    record["processes"] = [process for pid in found if (process := _process(root / f"proc/{pid}", pid))]
    return record if record["processes"] else {**record, "why": "the server ended while it was looked at"}


def _process(folder: Path, pid: int) -> dict[str, Any] | None:
    """None when it has ended."""
    try:
        threads = [thread for entry in sorted((folder / "task").iterdir(), key=_number) if (thread := _thread(entry))]
        name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    process: dict[str, Any] = {"pid": pid, "name": name, "threads": threads, "memory": None, "memory_why": ""}
    # Only where workers are there are experts, and to count a process's pages takes a while.
    if any(WORKER.fullmatch(thread["name"]) for thread in threads):
        try:
            process["memory"] = _memory(folder)
        except (OSError, ValueError) as error:
            process["memory_why"] = _why(error)
    return process


def _number(path: Path) -> int:
    return int(path.name)


def _thread(folder: Path) -> dict[str, Any] | None:
    """None when it has ended."""
    try:
        name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        status = (folder / "status").read_text(encoding="utf-8", errors="replace")
        # The name, in brackets, may hold anything.
        last = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        allowed = next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
        return {"tid": _number(folder), "name": name, "allowed": allowed, "last_cpu": int(last[36])}
    except (OSError, StopIteration, IndexError, ValueError):
        return None


def _memory(folder: Path) -> dict[str, Any]:
    """Bytes. nodes: of anonymous memory on each node. huge: of it in transparent huge pages, hugetlb: in the pool's."""
    nodes: dict[str, int] = {}
    hugetlb = 0
    for line in (folder / "numa_maps").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        pooled = any(word.startswith(f"file={HUGETLB}") for word in words)
        if not pooled and any(word.startswith("file=") or word == "stack" for word in words):
            continue
        page = next((int(word[18:]) for word in words if word.startswith("kernelpagesize_kB=")), 4) * 1024
        for node, pages in (match.groups() for word in words if (match := ON_NODE.fullmatch(word))):
            nodes[node] = nodes.get(node, 0) + int(pages) * page
            hugetlb += int(pages) * page if pooled else 0
    rollup = dict(_kib(folder / "smaps_rollup"))
    return {"nodes": nodes, "huge": rollup["AnonHugePages"], "hugetlb": hugetlb, "swap": rollup.get("Swap", 0)}


def _kib(path: Path) -> Iterator[tuple[str, int]]:
    """Lines like `AnonHugePages:   2048 kB`, in bytes."""
    found = False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            found = found or words[0] == "AnonHugePages:"
            yield words[0].rstrip(":"), int(words[1]) * 1024
    if not found:
        raise ValueError(f"{path.name} tells no AnonHugePages")


def _interrupts(proc: Path) -> tuple[list[dict[str, Any]], str]:
    """Those of the card: number, the CPUs that may take it, and the ones that do."""
    try:
        lines = (proc / "interrupts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return [], _why(error)
    found = []
    for line in lines:
        number, _, rest = line.strip().partition(":")
        if number.isdecimal() and any(word.startswith("nvidia") for word in rest.split()):
            folder = proc / "irq" / number
            found.append({"irq": int(number), **_affinity(folder)})
    return found, ""


def _affinity(folder: Path) -> dict[str, str | None]:
    lists: dict[str, str | None] = {}
    for key, name in (("allowed", "smp_affinity_list"), ("effective", "effective_affinity_list")):
        try:
            lists[key] = (folder / name).read_text(encoding="ascii").strip() or None
        except (OSError, ValueError):
            lists[key] = None
    return lists


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {(error.strerror or 'cannot be read').lower()}"
    return str(error)
