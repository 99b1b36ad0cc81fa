"""What is read of a server's threads and memory: trees captured from real worker pools, and broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ktfleet.measure.placement import Order, measure
from ktfleet.measure.placement_record import Record
from tests.pools import CGROUP, FIXTURES, SHARD, write


def captured(name: str) -> dict[str, str]:
    files: dict[str, str] = json.loads((FIXTURES / f"{name}.json").read_text())
    return files


def read(files: dict[str, str], root: Path) -> Record:
    return Record.model_validate(measure(Order(root=str(write(files, root)))))


def pid_of(files: dict[str, str]) -> int:
    return int(files[CGROUP])


def test_real_pools_are_read_as_they_are(tmp_path: Path) -> None:
    record = read(captured("too-many-workers"), tmp_path)
    (process,) = record.processes
    assert {thread.name: thread.allowed for thread in process.workers} == {
        "numa_0_m_0": "0", "numa_0_t_1": "1", "numa_0_t_2": "0-1",
    }  # fmt: skip
    assert {thread.allowed for thread in process.threads if not thread.worker} == {"0-1"}
    assert {thread.last_cpu for thread in process.threads} <= {0, 1}
    assert process.memory
    assert SHARD <= process.memory.nodes[0] <= 1.6 * SHARD
    assert SHARD * 0.9 <= process.memory.huge <= process.memory.nodes[0]
    assert (process.memory.hugetlb, process.memory.swap) == (0, 0)


def test_a_server_without_workers_has_no_experts_to_count(tmp_path: Path) -> None:
    (process,) = read(captured("no-workers"), tmp_path).processes
    assert (process.workers, process.memory, process.memory_why) == ((), None, "")


def test_pages_are_counted_in_their_size_and_files_are_not_experts(tmp_path: Path) -> None:
    files = captured("planned")
    maps = f"proc/{pid_of(files)}/numa_maps"
    files[maps] = (
        "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n"
        "7f10 default heap anon=5 dirty=5 N1=5 kernelpagesize_kB=4\n"
        "7f20 bind:1 file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N1=2 kernelpagesize_kB=2048\n"
        "7f30 default file=/usr/lib/libc.so.6 anon=7 dirty=7 N0=7 kernelpagesize_kB=4\n"
        "7f40 default stack anon=9 dirty=9 N0=9 kernelpagesize_kB=4\n"
        "7f50 default\n"
    )
    (process,) = read(files, tmp_path).processes
    assert process.memory
    assert process.memory.nodes == {0: 4096, 1: 7 * 4096 + 2 * 2**21}
    assert process.memory.hugetlb == 2 * 2**21


def test_the_cards_interrupts_are_found_by_their_name(tmp_path: Path) -> None:
    files = captured("planned")
    files["proc/interrupts"] += (
        " 98:   4   0 IR-PCI-MSI-0000:3b:00.0 0-edge nvidia\n 99:  0 1 IR-PCI-MSI 0-edge nvme0q1\n"
    )
    files["proc/irq/98/smp_affinity_list"] = "0-1\n"
    files["proc/irq/98/effective_affinity_list"] = "1\n"
    (interrupt,) = read(files, tmp_path).interrupts
    assert (interrupt.irq, interrupt.allowed, interrupt.effective) == (98, "0-1", "1")


@pytest.mark.parametrize(("change", "why"), [
    ({CGROUP: None}, "no server runs"),
    ({CGROUP: ""}, "no server runs"),
    ({CGROUP: "1\n"}, "the server ended while it was looked at"),
    ({CGROUP: "x\n"}, "invalid literal"),
])  # fmt: skip
def test_without_a_server_there_is_a_reason(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    files = {key: text for key, text in {**captured("planned"), **change}.items() if text is not None}
    record = read(files, tmp_path)
    assert why in record.why
    assert record.processes == ()


@pytest.mark.parametrize(("name", "text", "why"), [
    ("smaps_rollup", None, "no such file"),
    ("numa_maps", None, "no such file"),
    ("smaps_rollup", "", "smaps_rollup tells no AnonHugePages"),
])  # fmt: skip
def test_memory_that_cannot_be_read_is_told_and_the_threads_all_the_same(
    name: str, text: str | None, why: str, tmp_path: Path
) -> None:
    files = captured("planned")
    path = f"proc/{pid_of(files)}/{name}"
    files = {key: value for key, value in {**files, path: text}.items() if value is not None}
    (process,) = read(files, tmp_path).processes
    assert process.memory is None
    assert why in process.memory_why
    assert len(process.workers) == 1


def test_threads_that_end_meanwhile_are_left_out(tmp_path: Path) -> None:
    files = captured("planned")
    folder = f"proc/{pid_of(files)}/task"
    ended = next(
        name.split("/")[3] for name in files if name.startswith(folder) and name.split("/")[3] != str(pid_of(files))
    )
    cut = {name: text for name, text in files.items() if name != f"{folder}/{ended}/stat"}
    (before,), (after,) = read(files, tmp_path / "a").processes, read(cut, tmp_path / "b").processes
    assert {thread.tid for thread in before.threads} - {thread.tid for thread in after.threads} == {int(ended)}


def test_interrupts_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    files = captured("planned")
    del files["proc/interrupts"]
    record = read(files, tmp_path)
    assert (record.interrupts, "no such file" in record.interrupts_why) == ((), True)
