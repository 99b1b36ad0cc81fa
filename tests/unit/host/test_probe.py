"""The probe reads every host of the field log, explains each gap, and never fails."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktfleet.host import bundle, probe
from ktfleet.host.probe import (
    apt_conf,
    asked,
    boot,
    cpus,
    devices,
    dimms,
    nvidia,
    packages,
    reader,
    storage,
    units,
    values,
)
from ktfleet.host.state import SCHEMA, HostState, Mount, Unit
from ktfleet.plan.request import request
from ktfleet.pyinfra_api.facts import probe_arguments
from tests.trees import CMDLINE, CPU_FLAGS, CPU_MODEL, SYSCTL, Numbering, cpulist, link, module, pus, put, write_tree
from tests.unit.host.probed import MEMORY, NOT_RECORDED, SMALL, state

SOURCE = bundle.source()
FOLDER = Path(probe.__file__).parent
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
OUT = "leads out of the captured tree"
GOVERNORS = f"{CPU}/cpu*/cpufreq/scaling_governor"


def nulls(record: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Every field without a value, and the keys of `unreadable` that may explain it."""
    kernel, booted = record["kernel"], record["boot"]
    singles: list[tuple[str, Any, set[str]]] = [
        *((f"os.{name}", value, {"os", *boot.OS_RELEASE}) for name, value in record["os"].items()),
        ("kernel.release", kernel["release"], {"/proc/sys/kernel/osrelease"}),
        ("kernel.boot_id", kernel["boot_id"], {"/proc/sys/kernel/random/boot_id"}),
        ("kernel.cmdline", kernel["cmdline"], {"/proc/cmdline"}),
        ("cpu_model", record["cpu_model"], {"/proc/cpuinfo"}),
        ("cpu_flags", record["cpu_flags"], {"/proc/cpuinfo"}),
        ("cpus", record["cpus"] or None, {"cpus"}),
        ("nodes", record["nodes"] or None, {"nodes"}),
        ("mem_total", record["mem_total"], {"/proc/meminfo"}),
        ("mem_available", record["mem_available"], {"/proc/meminfo"}),
        ("cpufreq_driver", record["cpufreq_driver"], {f"{CPU}/cpu0/cpufreq/scaling_driver"}),
        ("glibc", record["glibc"], {"glibc"}),
        ("python", record["python"], {"python"}),
        ("boot.loader", booted["loader"], {"boot.loader"}),
        ("boot.next_cmdline", booted["next_cmdline"], {"boot.next_cmdline", *boot.GRUB_CFG}),
        *((path, digest, {path}) for path, digest in record["files"].items()),
    ]
    singles += _more_singles(record)
    for cpu in record["cpus"]:
        topology = f"{CPU}/cpu{cpu['cpu']}/topology"
        singles += [
            ("core", cpu["core"], {f"{topology}/core_id"}),
            ("socket", cpu["socket"], {f"{topology}/physical_package_id"}),
            ("node", cpu["node"], {f"cpu{cpu['cpu']}.node"}),
            ("siblings", cpu["siblings"], {f"{topology}/thread_siblings_list"}),
        ]
    for node in record["nodes"]:
        folder = f"{NODE}/node{node['node']}"
        singles += [
            (name, node[name], {f"{folder}/{file}"})
            for name, file in (
                ("mem_total", "meminfo"),
                ("mem_free", "meminfo"),
                ("distances", "distance"),
                ("hugepages_total", "hugepages/hugepages-2048kB/nr_hugepages"),
                ("hugepages_free", "hugepages/hugepages-2048kB/free_hugepages"),
            )
        ]
    return ((name, keys) for name, value, keys in singles if value is None)


def _more_singles(record: dict[str, Any]) -> Iterator[tuple[str, Any, set[str]]]:
    """Idle states, memory, devices, services, packages."""
    booted, below = record["boot"], lambda folder: {key for key in record["unreadable"] if key.startswith(folder)}
    for name in ("cpu_flags_cpuid", "cpu_dma_latency_us", "clock_synchronised", "dimms"):
        yield name, record[name], {name}
    for name, path in (("swaps", "/proc/swaps"), ("modules", "/proc/modules")):
        yield name, record[name], {path}
    yield "boot.next_kernel", booted["next_kernel"], {"boot.next_kernel", *boot.GRUB_CFG}
    yield "boot.efi", booted["efi"], {boot.EFI}
    yield "boot.secure_boot", booted["secure_boot"], {boot.EFI, boot.SECURE_BOOT}
    yield "idle_driver", record["idle_driver"], {f"{CPU}/cpuidle/current_driver"}
    yield "idle_states", record["idle_states"] or None, {"idle_states"} | below(f"{CPU}/cpu0/cpuidle/")
    yield "interrupted", record["packages"]["interrupted"], {packages.DPKG + "/updates"}
    yield "cloud_init", record["cloud_init"], {boot.CLOUD_INIT} | below(boot.CLOUD_INIT)
    for dimm in record["dimms"] or ():
        yield "dimm.size", dimm["size"], below(dimms.EDAC)
        # An empty slot has no speed.
        yield "dimm.rated_mts", dimm["rated_mts"] if dimm["size"] else True, {"dimms.speed"}
    yield "displays", record["displays"], {devices.PCI}
    for display in record["displays"] or ():
        for name, value in display.items():
            yield name, True if name == "driver" else value, below(f"{devices.PCI}/{display['address']}/")
    for disk in record["disks"]:
        yield "disk.size", disk["size"], {f"{storage.BLOCK}/{disk['name']}/size"}
        yield "rotational", disk["rotational"], {f"{storage.BLOCK}/{disk['name']}/queue/rotational"}
    for mount in record["mounts"].values():
        yield "mount.size", mount["size"], {"mounts", mount["mount"]}
    for path, text in record["texts"].items():
        yield path, text, {path}


def unexplained(record: dict[str, Any]) -> list[str]:
    """Fields without a value for which `unreadable` holds no reason."""
    return [name for name, keys in nulls(record) if not keys & set(record["unreadable"])]


def test_a_workstation_is_read_completely(workstation: Path) -> None:
    """Each field has the value of the tree; only what no tree records is missing."""
    seen = state(workstation)
    assert seen.schema_version == SCHEMA
    assert (seen.os.id, seen.os.version_id, seen.os.pretty_name) == ("debian", "12", "Debian GNU/Linux 12")
    assert seen.kernel.release == "6.1.0-28-amd64"
    assert seen.kernel.boot_id == "3b9f0a52-6f0c-4a8e-9a51-0d6c2c9a7e11"
    assert seen.kernel.cmdline == f"BOOT_IMAGE=/boot/vmlinuz-6.1.0-28-amd64 {CMDLINE}"
    assert (seen.cpu_model, seen.cpu_flags) == (CPU_MODEL, tuple(CPU_FLAGS.split()))
    assert (seen.mem_total, seen.mem_available) == (256 << 30, 2 * (131072 * 95 // 100) << 20)
    assert seen.cpufreq_driver == "intel_pstate"
    assert (seen.boot.loader, seen.boot.next_cmdline) == ("grub", CMDLINE)
    assert seen.boot.next_kernel == seen.kernel.release
    assert (seen.boot.efi, seen.boot.secure_boot) == (True, False)
    assert [cpu.cpu for cpu in seen.cpus] == list(range(80))
    why = dict.fromkeys(NOT_RECORDED, "captured tree: not recorded")
    assert seen.unreadable == {**why, "cpu_flags_cpuid": "the probe does not ask CPUID"}


def test_default_flags_are_those_of_a_gold_6138() -> None:
    """AVX-512 of Skylake-SP, neither VNNI nor AMX."""
    flags = set(CPU_FLAGS.split())
    assert {"avx512f", "avx512bw", "avx512dq", "avx512cd", "avx512vl"} <= flags
    assert not any("vnni" in flag or "amx" in flag for flag in flags)


def test_keys_are_exactly_those_of_the_state(workstation: Path) -> None:
    """By alias, at every level."""
    asked = {"mounts": ["/"], "units": ["irqbalance.service"]}
    record = probe.collect(str(workstation), **asked)
    for part, model in (("mounts", Mount), ("units", Unit)):
        assert {tuple(value) for value in record[part].values()} == {tuple(model.model_fields)}
    fields = HostState.model_fields
    assert set(record) == {field.alias or name for name, field in fields.items()}
    for part in ("os", "kernel", "boot", "nvidia", "packages"):
        assert set(record[part]) == set(getattr(state(workstation), part).model_dump())
    for part in ("cpus", "nodes", "idle_states", "dimms", "displays", "disks"):
        assert set(record[part][0]) == set(getattr(state(workstation), part)[0].model_dump())


@pytest.mark.parametrize(
    ("numbering", "node0", "siblings"),
    [
        ("linear", [*range(20), *range(40, 60)], (7, 47)),
        ("adjacent", [*range(40)], (6, 7)),
        ("even_odd", [*range(0, 80, 2)], (7, 47)),
    ],
)
def test_each_numbering(tmp_path: Path, numbering: Numbering, node0: list[int], siblings: tuple[int, int]) -> None:
    """Nodes, sockets and siblings follow the kernel's files, not a convention."""
    seen = state(write_tree(tmp_path, numbering=numbering, governors=None))
    assert list(seen.nodes[0].cpus) == node0
    assert list(seen.nodes[1].cpus) == sorted(set(range(80)) - set(node0))
    assert seen.cpus[7].siblings == siblings
    for cpu, pu in zip(seen.cpus, pus(numbering=numbering), strict=True):
        assert (cpu.cpu, cpu.core, cpu.socket, cpu.node) == (pu.cpu, pu.core_id, pu.socket, pu.node)
        assert cpu.socket == cpu.node == int(cpu.cpu not in node0)


def test_hyperthreads_off(tmp_path: Path) -> None:
    """One PU a core: its only sibling is itself."""
    seen = state(write_tree(tmp_path, threads=1, cores=4))
    assert [cpu.siblings for cpu in seen.cpus] == [(cpu,) for cpu in range(8)]


def test_a_lost_core(tmp_path: Path) -> None:
    """The firmware hides it, the later CPUs move up."""
    seen = state(write_tree(tmp_path, lost={(1, 7)}, governors=None))
    assert [len(node.cpus) for node in seen.nodes] == [40, 38]
    assert [cpu.cpu for cpu in seen.cpus] == list(range(78))
    assert seen.cpus[38].siblings == (38, 77)
    assert pus(lost={(1, 7)})[27].core == 8


def test_a_node_without_memory(tmp_path: Path) -> None:
    """0 MB is a number, not a gap."""
    seen = state(write_tree(tmp_path, **SMALL, node_mib=(256 * 1024, 0)))
    assert [node.mem_total for node in seen.nodes] == [256 << 30, 0]
    assert seen.mem_total == 256 << 30


def test_sub_numa_clustering(tmp_path: Path) -> None:
    """4 nodes on 2 sockets."""
    seen = state(write_tree(tmp_path, cores=4, nodes_per_socket=2))
    assert [node.cpus for node in seen.nodes] == [(0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13), (6, 7, 14, 15)]
    assert {(cpu.socket, cpu.node) for cpu in seen.cpus} == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert seen.nodes[1].distances == (11, 10, 21, 21)
    assert [node.mem_total for node in seen.nodes] == [64 << 30] * 4


def test_one_socket(tmp_path: Path) -> None:
    """One node, distance to itself only."""
    seen = state(write_tree(tmp_path, sockets=1, cores=4))
    assert [node.node for node in seen.nodes] == [0]
    assert seen.nodes[0].distances == (10,)


def test_huge_pages_are_counted_by_node(tmp_path: Path) -> None:
    """Pages of 2 MiB, total and free."""
    root = write_tree(tmp_path, **SMALL, hugepages=(512, 256))
    put(root, f"{NODE}/node0/hugepages/hugepages-2048kB/free_hugepages", "12\n")
    assert [(node.hugepages_total, node.hugepages_free) for node in state(root).nodes] == [(512, 12), (256, 256)]


def test_a_tree_needs_a_size_for_each_node(tmp_path: Path) -> None:
    """A typo in a test must not make another machine."""
    with pytest.raises(ValueError, match="4 nodes wanted"):
        write_tree(tmp_path, nodes_per_socket=2, node_mib=(1, 2))


def test_offline_cpus_are_left_out(tmp_path: Path) -> None:
    """They have no topology folder and no list names them."""
    seen = state(write_tree(tmp_path, **SMALL, offline={5, 6}))
    assert [cpu.cpu for cpu in seen.cpus] == [0, 1, 2, 3, 4, 7]
    assert seen.cpus[1].siblings == (1,)
    assert set(seen.unreadable) == {*NOT_RECORDED, "cpu_flags_cpuid"}


def test_siblings_may_name_offline_cpus(tree: Path) -> None:
    """They are passed on as read."""
    put(tree, f"{CPU}/online", "0-3\n")
    seen = state(tree)
    assert [cpu.siblings for cpu in seen.cpus] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_siblings_fall_back_to_the_kernels_new_name(tree: Path) -> None:
    """core_cpus_list replaces thread_siblings_list; a broken list is reported."""
    (tree / f"{CPU[1:]}/cpu0/topology/thread_siblings_list").unlink()
    put(tree, f"{CPU}/cpu1/topology/thread_siblings_list", "1-\n")
    seen = state(tree)
    assert [seen.cpus[0].siblings, seen.cpus[1].siblings] == [(0, 4), (1, 5)]
    assert seen.unreadable[f"{CPU}/cpu1/topology/thread_siblings_list"] == "not a CPU list: seen '1-'"
    assert f"{CPU}/cpu0/topology/thread_siblings_list" not in seen.unreadable


def test_siblings_must_name_the_cpu_itself(tree: Path) -> None:
    """A list of other CPUs is a broken capture."""
    for name in ("thread_siblings_list", "core_cpus_list"):
        put(tree, f"{CPU}/cpu0/topology/{name}", "2-3\n")
    seen = state(tree)
    assert seen.cpus[0].siblings is None
    assert seen.unreadable[f"{CPU}/cpu0/topology/core_cpus_list"] == "does not list CPU 0: seen '2-3'"


def test_without_an_online_list_the_folders_count(tmp_path: Path) -> None:
    """A CPU with a topology or a node entry is online."""
    root = write_tree(tmp_path, **SMALL, offline={5})
    (root / f"{CPU[1:]}/online").unlink()
    shutil.rmtree(root / f"{CPU[1:]}/cpu2/topology")
    seen = state(root)
    assert [cpu.cpu for cpu in seen.cpus] == [0, 1, 2, 3, 4, 6, 7]
    assert seen.unreadable[f"{CPU}/online"] == "no such file"
    assert seen.unreadable[f"{CPU}/cpu2/topology/core_id"] == "no such file"


def test_without_node_folders(tree: Path) -> None:
    """No NUMA in this kernel, or not captured."""
    shutil.rmtree(tree / NODE[1:])
    record = probe.collect(str(tree))
    assert record["nodes"] == []
    assert record["unreadable"]["nodes"] == f"no node folder in {NODE}"
    assert {cpu["node"] for cpu in record["cpus"]} == {None}
    assert unexplained(record) == []


def test_no_cpufreq(tmp_path: Path) -> None:
    """The BIOS owns power."""
    seen = state(write_tree(tmp_path, **SMALL, governors=None), sysfs=[GOVERNORS])
    assert seen.cpufreq_driver is None
    assert seen.unreadable[f"{CPU}/cpu0/cpufreq/scaling_driver"] == "no such file"
    assert seen.unreadable[GOVERNORS] == "no readable match"


def test_an_empty_tree_is_explained(tmp_path: Path) -> None:
    """Every null has its reason, also where the folder itself does not exist."""
    for root in (tmp_path, tmp_path / "nowhere"):
        record = probe.collect(str(root), files=["/etc/passwd"])
        assert unexplained(record) == []
        assert HostState.model_validate(record).cpus == ()
        assert sum(1 for _ in nulls(record)) == 29


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n', ("ubuntu", "24.04", "Ubuntu 24.04 LTS")),
        ("ID='debian'\nVERSION_ID=13\n", ("debian", "13", None)),
        ('ID="debian\nBUG=1\n', (None, None, None)),
        ("", (None, None, None)),
    ],
)
def test_os_release(tree: Path, text: str, wanted: tuple[str | None, ...]) -> None:
    """Shell assignments with any quotes; Debian's testing has no VERSION_ID."""
    put(tree, "/usr/lib/os-release", text)
    seen = state(tree)
    assert (seen.os.id, seen.os.version_id, seen.os.pretty_name) == wanted
    assert ("os" in seen.unreadable) == (None in wanted)


def test_os_release_falls_back_to_usr_lib(tree: Path) -> None:
    """/etc/os-release may be missing."""
    (tree / "etc/os-release").unlink()
    seen = state(tree)
    assert seen.os.id == "debian"
    assert "/etc/os-release" not in seen.unreadable


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("\tlinux\t/boot/vmlinuz root=/dev/sda1 ro  quiet splash $vt_handoff", "root=/dev/sda1 ro quiet splash"),
        ('linux /vmlinuz ${extra} a=1 "$more"', "a=1"),
        ("linuxefi /vmlinuz 'a=1' b=\"2\"", "a=1 b=2"),
        ('linux /vmlinuz dyndbg="file x +p" last', '"dyndbg=file x +p" last'),
        ("linux /vmlinuz a=$root_dev/x", "a=$root_dev/x"),
        ("linux /vmlinuz", ""),
        ("echo 'linux'\n  linux /vmlinuz first\nlinux /vmlinuz second", "first"),
    ],
)
def test_next_command_line(line: str, wanted: str) -> None:
    """The arguments of the first entry as the kernel will see them."""
    assert boot.parse_grub_cfg(line + "\n") == wanted


@pytest.mark.parametrize(
    ("line", "why"),
    [("linux /vmlinuz a='b", "broken quotes"), ("linux_gfx_mode=1", "no linux line"), ("", "no linux line")],
)
def test_next_command_line_unknown(tree: Path, line: str, why: str) -> None:
    """A grub.cfg that holds none (blscfg) or a broken one."""
    put(tree, "/boot/grub/grub.cfg", line)
    seen = state(tree)
    assert (seen.boot.loader, seen.boot.next_cmdline) == ("grub", None)
    assert seen.unreadable["/boot/grub/grub.cfg"].startswith(why)


def test_next_command_line_is_not_the_running_one(tmp_path: Path) -> None:
    """A reboot is needed: both are shown."""
    seen = state(write_tree(tmp_path, **SMALL, next_cmdline=f"{CMDLINE} transparent_hugepage=always"))
    assert seen.boot.next_cmdline == f"{CMDLINE} transparent_hugepage=always"
    assert seen.kernel.cmdline is not None
    assert "transparent_hugepage" not in seen.kernel.cmdline


@pytest.mark.parametrize(
    ("files", "cmdline", "wanted"),
    [
        ([], "BOOT_IMAGE=/x ro", None),
        (["/boot/grub/grub.cfg"], "ro", "grub"),
        (["/boot/grub2/grub.cfg"], "ro", "grub"),
        (["/etc/default/grub"], "ro", "grub"),
        (["/etc/kernel/cmdline"], "BOOT_IMAGE=/x ro", "systemd-boot"),
        (["/boot/loader/loader.conf"], "ro", "systemd-boot"),
        (["/boot/efi/loader/loader.conf"], "ro", "systemd-boot"),
        (["/efi/loader/loader.conf"], "ro", "systemd-boot"),
        (["/etc/default/grub", "/boot/efi/loader/loader.conf"], r"initrd=\x ro", "systemd-boot"),
        (["/boot/grub/grub.cfg", "/etc/kernel/cmdline"], "BOOT_IMAGE=/x ro", "grub"),
        (["/boot/grub/grub.cfg", "/etc/kernel/cmdline"], None, "grub"),
    ],
)
def test_boot_loader(tmp_path: Path, files: list[str], cmdline: str | None, wanted: str | None) -> None:
    """Where the files of both lie around, the running command line decides."""
    root = write_tree(tmp_path, sockets=1, cores=1, loader=None, files=dict.fromkeys(files, "x\n"))
    if cmdline is None:
        (root / "proc/cmdline").unlink()
    else:
        put(root, "/proc/cmdline", cmdline)
    record = probe.collect(str(root))
    assert record["boot"]["loader"] == wanted
    assert unexplained(record) == []


def test_systemd_boot(tmp_path: Path) -> None:
    """Its next command line is not read; the file that sets it is a drop-in."""
    seen = state(write_tree(tmp_path, **SMALL, loader="systemd-boot"))
    assert seen.boot.loader == "systemd-boot"
    assert list(seen.boot.drop_ins) == ["/etc/kernel/cmdline"]
    assert "boot.next_cmdline" in seen.unreadable


def test_drop_ins(tree: Path) -> None:
    """What update-grub reads: not hidden files, not other suffixes."""
    for name in ("50-cloudimg-settings.cfg", "zz-ktfleet.cfg", ".hidden.cfg", "old.cfg.bak"):
        put(tree, f"/etc/default/grub.d/{name}", name)
    drop_ins = state(tree).boot.drop_ins
    assert list(drop_ins) == [
        "/etc/default/grub",
        "/etc/default/grub.d/50-cloudimg-settings.cfg",
        "/etc/default/grub.d/zz-ktfleet.cfg",
    ]
    assert drop_ins["/etc/default/grub.d/zz-ktfleet.cfg"] == hashlib.sha256(b"zz-ktfleet.cfg").hexdigest()


def test_sysctl(tree: Path) -> None:
    """By name; tabs become spaces; dots and slashes swap as in sysctl(8)."""
    put(tree, "/proc/sys/net/ipv4/conf/eth0.100/rp_filter", "2\n")
    put(tree, "/proc/sys/kernel/core_pattern", "\n")
    names = ["net.ipv4.tcp_rmem", "net.ipv4.conf.eth0/100.rp_filter", "vm/swappiness", "kernel.core_pattern", "vm.no"]
    seen = state(tree, sysctl=names)
    assert seen.sysctl == dict(zip(names, ["4096 131072 6291456", "2", "60", ""], strict=False))
    assert seen.unreadable["vm.no"] == "no such file"


def test_sysfs(tree: Path) -> None:
    """Each matching path with its stripped text; a pattern without any is named."""
    enabled = "/sys/kernel/mm/transparent_hugepage/enabled"
    put(tree, f"{CPU}/cpu.hidden/cpufreq/scaling_governor", "x")
    seen = state(
        tree, sysfs=[f"{CPU}/cpu[0-9]*/cpufreq/scaling_governor", enabled, "/sys/no", "/sys/no*", "proc/cmdline"]
    )
    governors = {f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "performance" for cpu in range(8)}
    assert governors.items() <= seen.sysfs.items()
    assert seen.sysfs[enabled] == "always [madvise] never"
    assert seen.sysfs["/proc/cmdline"] == seen.kernel.cmdline
    assert len(seen.sysfs) == 10
    assert (seen.unreadable["/sys/no"], seen.unreadable["/sys/no*"]) == ("no such file", "no readable match")


def test_files(tree: Path) -> None:
    """Digests of files of any size; null with a reason for the others."""
    big = b"x" * (reader.READ_LIMIT + 5)
    put(tree, "/opt/big", big)
    put(tree, "/opt/empty", b"")
    seen = state(tree, files=["/opt/big", "/opt/empty", "/opt/no", "/opt", "/opt/big/x"])
    assert seen.files == {
        "/opt/big": hashlib.sha256(big).hexdigest(),
        "/opt/empty": hashlib.sha256(b"").hexdigest(),
        "/opt/no": None,
        "/opt": None,
        "/opt/big/x": None,
    }
    assert seen.unreadable["/opt/no"] == seen.unreadable["/opt/big/x"] == "no such file"
    assert seen.unreadable["/opt"] == "is a directory"


RECORD = "/var/lib/ktfleet/before.json"


@pytest.mark.parametrize(
    ("text", "wanted", "why"),
    [
        ('{"vm": {"/proc/x": "60"}}', {"vm": {"/proc/x": "60"}}, None),
        ("{}", {}, None),
        (None, {}, None),
        ("", {}, "broken JSON: seen ''"),
        ('{"a": ', {}, "broken JSON"),
        ('{"a": NaN}', {}, "broken JSON"),
        ('{"a": 1e999}', {}, "broken JSON"),
        ("[" * 100_000, {}, "broken JSON"),
        ("[1]", {}, "not a record"),
        ('{"a": %s}' % ("[" * 50 + "]" * 50), {}, "not a record"),
        ('{"\\ud800": "\\ud800"}', {"?": "?"}, None),
    ],
)
def test_before(tree: Path, text: str | None, wanted: dict[str, Any], why: str | None) -> None:
    """The record of the values before our first change, or nothing and a reason."""
    if text is not None:
        put(tree, RECORD, text)
    seen = state(tree, before=RECORD)
    assert seen.before == wanted
    assert seen.unreadable.get(RECORD, "").startswith(why or "")
    assert (RECORD in seen.unreadable) == (why is not None)


# What may lie where a file should be.


def test_symlinks_out_of_the_tree_are_not_followed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A file, a folder, a chain, a dangling link, too many dots: each is named, none is read."""
    outside = put(tmp_path_factory.mktemp("outside"), "/secret", "linux /vmlinuz secret\n")
    (tree / "boot/grub/grub.cfg").unlink()
    link(tree, "/boot/grub/grub.cfg", str(outside))
    shutil.rmtree(tree / f"{NODE[1:]}/node1")
    link(tree, f"{NODE}/node1", str(outside.parent))
    link(tree, "/etc/default/grub.d", str(outside.parent))
    link(tree, "/etc/chain", "middle")
    link(tree, "/etc/middle", str(outside))
    link(tree, "/etc/dangling", "/nowhere/at/all")
    link(tree, "/etc/dots", "../" * 40 + "etc/passwd")
    link(tree, "/sys/escape", str(outside.parent))
    paths = ["/etc/chain", "/etc/dangling", "/etc/dots", "/sys/escape/secret"]
    record = probe.collect(
        str(tree), files=paths, sysfs=["/etc/chain", "/sys/escape/*", "/sys/escape/secret"], before="/etc/chain"
    )
    assert record["files"] == dict.fromkeys(paths)
    assert record["sysfs"] == {}
    assert record["boot"]["next_cmdline"] is None
    asked = [*paths, "/boot/grub/grub.cfg", f"{NODE}/node1/meminfo", "/etc/default/grub.d", "/sys/escape"]
    assert {path: record["unreadable"][path] for path in asked} == dict.fromkeys(asked, OUT)
    assert "secret" not in json.dumps({**record, "unreadable": {}, "files": {}})
    assert unexplained(record) == []


def test_an_absolute_os_release_link_is_reported_and_replaced(tree: Path) -> None:
    """This machine's os-release must not pass for the host's."""
    (tree / "etc/os-release").unlink()
    link(tree, "/etc/os-release", "/usr/lib/os-release")
    seen = state(tree)
    assert seen.os.pretty_name == "Debian GNU/Linux 12"
    assert seen.unreadable["/etc/os-release"] == OUT


def test_a_requested_path_cannot_climb_out(tree: Path) -> None:
    """Nor a sysctl name."""
    climb = "/.." * 40 + "/etc/passwd"
    seen = state(tree, files=[climb], sysctl=["../../../../../../../../../../etc/passwd"], sysfs=[climb])
    assert (seen.files, seen.sysctl, seen.sysfs) == ({climb: None}, {}, {})
    assert seen.unreadable[climb] == OUT


def test_links_within_the_tree_are_followed(tree: Path) -> None:
    """As sysfs is full of them."""
    link(tree, "/sys/class/cpu0", "../devices/system/cpu/cpu0")
    seen = state(tree, sysfs=["/sys/class/cpu?/topology/core_id", f"{CPU}/cpu0/node*/cpulist"])
    assert seen.sysfs == {"/sys/class/cpu0/topology/core_id": "0", f"{CPU}/cpu0/node0/cpulist": "0-1,4-5"}


def test_a_root_that_is_a_symlink(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tree is where it points."""
    place = tmp_path_factory.mktemp("links")
    link(place, "/here", str(tree))
    assert probe.collect(str(place / "here")) == probe.collect(str(tree))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: file.symlink_to(file.name), "symlink loop"),
        (lambda file: file.mkdir(), "is a directory"),
        (lambda file: os.mkfifo(file), "not a regular file"),
        (lambda file: file.write_bytes(b""), "no MemTotal in kB; no MemAvailable in kB"),
        (lambda file: file.write_bytes(b"\xff\x00MemTotal: 1 GB"), "no MemTotal in kB; no MemAvailable in kB"),
        (lambda file: file.write_bytes(b"x" * (1 << 21)), "larger than 1048576 bytes"),
    ],
    ids=["loop", "folder", "fifo", "empty", "binary", "huge"],
)
def test_not_a_readable_file(tree: Path, make: Callable[[Path], object], why: str) -> None:
    """Whatever lies there: null and a reason."""
    (tree / "proc/meminfo").unlink()
    make(tree / "proc/meminfo")
    record = probe.collect(str(tree))
    assert record["mem_total"] is None
    assert record["unreadable"]["/proc/meminfo"] == why


def test_cpuinfo_of_any_length(tree: Path) -> None:
    """A thousand CPUs are more than 1 MiB of it; the first block is enough."""
    file = tree / "proc/cpuinfo"
    file.write_bytes(file.read_bytes() * 200)
    assert file.stat().st_size > reader.READ_LIMIT
    assert state(tree).cpu_model == CPU_MODEL


def test_a_file_of_many_chunks(tree: Path) -> None:
    """Longer than the first read, shorter than the limit."""
    put(tree, "/sys/long", "y" * (reader.CHUNK * 3))
    assert state(tree, sysfs=["/sys/long"]).sysfs["/sys/long"] == "y" * (reader.CHUNK * 3)


def test_bytes_that_are_not_utf8(tree: Path) -> None:
    """In a file, in a file's name, in an argument: replaced, and the line stays ASCII."""
    put(tree, "/sys/dir/plain", b"caf\xe9\n")
    (tree / "sys/dir" / os.fsdecode(b"n\xe9")).write_text("x")
    record = probe.collect(str(tree), sysfs=["/sys/dir/*"], files=[os.fsdecode(b"/n\xe9"), "/a\0b"])
    assert record["sysfs"] == {"/sys/dir/plain": "caf\N{REPLACEMENT CHARACTER}", "/sys/dir/n?": "x"}
    assert record["files"] == {"/n?": None, "/a\0b": None}
    assert record["unreadable"]["/a\0b"] == "embedded null byte"
    HostState.model_validate_json(json.dumps(record))


def test_numbers_that_are_none(tree: Path) -> None:
    """What was seen is in the reason, cut short."""
    put(tree, f"{CPU}/cpu0/topology/core_id", "12a\n")
    put(tree, f"{NODE}/node0/distance", "10 x\n")
    put(tree, f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "9" * 500)
    reasons = state(tree).unreadable
    assert reasons[f"{CPU}/cpu0/topology/core_id"] == "not a number: seen '12a'"
    assert reasons[f"{NODE}/node0/distance"] == "not a number: seen 'x'"
    assert len(reasons[f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages"]) < 80


def test_permission_denied(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe without root sees less and says so."""
    denied = re.compile(r"/(grub\.cfg|meminfo|efi/.*|grub\.d|before\.json|swappiness|scaling_governor)$")

    def guard(name: str) -> None:
        original = getattr(os, name)

        def call(path: Any, *rest: Any, **more: Any) -> Any:
            if denied.search(os.fspath(path)):
                raise PermissionError(13, "Permission denied", path)
            return original(path, *rest, **more)

        monkeypatch.setattr(os, name, call)

    for name in ("open", "stat", "listdir"):
        guard(name)
    record = probe.collect(
        str(tree), sysctl=["vm.swappiness"], sysfs=[GOVERNORS], files=["/boot/grub/grub.cfg"], before=RECORD
    )
    paths = ["/boot/grub/grub.cfg", "/proc/meminfo", "/etc/default/grub.d", RECORD, "vm.swappiness"]
    paths += ["/boot/efi/loader/loader.conf", f"{CPU}/cpu7/cpufreq/scaling_governor"]
    assert {path: record["unreadable"].get(path) for path in paths} == dict.fromkeys(paths, "permission denied")
    assert record["boot"]["loader"] == "grub"
    assert record["unreadable"][GOVERNORS] == "no readable match"
    assert unexplained(record) == []


def test_a_file_that_fails_while_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sysfs answers some reads with EIO or EINVAL."""

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdopen", fail)
    assert probe.collect(str(tree))["unreadable"]["/proc/cmdline"] == "input/output error"


# The program, as it runs on a host.


def run(*arguments: str, python: str = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python3 -c SOURCE ARGUMENTS`, in a bare environment."""
    return subprocess.run([python, "-c", SOURCE, *arguments], capture_output=True, text=True, env=environment)


def test_symlinks_are_read_and_not_followed(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, **SMALL, files={"/etc/file": "x"})
    (tree / "etc/masked").symlink_to("/dev/null")
    asked = ["/etc/masked", "/etc/file", "/etc/none", "/none/none"]
    record = probe.collect(str(tree), links=asked)
    assert record["links"] == {"/etc/masked": "/dev/null", "/etc/file": None, "/etc/none": None, "/none/none": None}
    assert [record["unreadable"].get(path) for path in asked] == [
        None, "not a symlink", "no such file", "no such file",
    ]  # fmt: skip


def test_the_program_takes_every_argument(workstation: Path) -> None:
    """As pyinfra sends them."""
    done = run("--root", str(workstation), *probe_arguments())
    assert json.loads(done.stdout) == probe.collect(str(workstation), **asdict(request()))


def test_the_program_prints_one_line(workstation: Path) -> None:
    """The same as `collect`, in a C locale too."""
    asked = ["--sysctl", "vm.swappiness", "vm.no", "--sysfs", GOVERNORS, "--file", "/etc/default/grub"]
    done = run("--root", str(workstation), *asked, "--before", RECORD, LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert done.stdout.isascii()
    assert json.loads(done.stdout) == probe.collect(
        str(workstation), ["vm.swappiness", "vm.no"], [GOVERNORS], ["/etc/default/grub"], before=RECORD
    )


OTHERS = sorted({*Path("/root/.pyenv/versions").glob("3.*/bin/python3"), *Path("/usr/bin").glob("python3.[0-9]*[0-9]")})
SUPPORTED = [path for path in OTHERS if "/3.6." not in str(path) and "/3.7." not in str(path)]


@pytest.mark.parametrize("python", SUPPORTED, ids=str)
def test_other_pythons_print_the_same(tree: Path, python: Path) -> None:
    """Every Python from 3.8 on that this machine has."""
    asked = ("--root", str(tree), "--sysfs", "/sys/kernel/mm/transparent_hugepage/*")
    done = run(*asked, python=str(python))
    assert done.stderr == ""
    assert json.loads(done.stdout) == probe.collect(str(tree), sysfs=[asked[-1]])


def test_this_machine_is_read() -> None:
    """Live: glibc and Python are known, and nothing is read from a tree."""
    done = run("--sysctl", "vm.swappiness", "--sysfs", "/sys/kernel/mm/transparent_hugepage/*")
    record = json.loads(done.stdout)
    seen = HostState.model_validate_json(done.stdout)
    assert seen.python == ".".join(map(str, sys.version_info[:3]))
    assert seen.glibc is None or re.fullmatch(r"2\.\d+", seen.glibc)
    assert {cpu.cpu for cpu in seen.cpus} >= os.sched_getaffinity(0)
    assert seen.kernel.release == os.uname().release
    assert unexplained(record) == []


def test_another_libc(monkeypatch: pytest.MonkeyPatch) -> None:
    """musl knows no such name."""
    monkeypatch.setattr(os, "confstr", lambda _: None)
    record = probe.collect()
    assert (record["glibc"], record["unreadable"]["glibc"]) == (None, "not glibc: seen ''")


def test_wrong_arguments() -> None:
    """A usage error, not a record."""
    done = run("--nonsense")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_bug_in_the_probe_is_still_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan gets a state that names the failure."""
    monkeypatch.setattr(probe, "read_os", lambda _: 1 / 0)
    assert probe.main([]) == 0
    seen = HostState.model_validate_json(capsys.readouterr().out)
    assert seen.unreadable == {"probe": "failed: ZeroDivisionError('division by zero')"}


def test_the_source_is_python_3_8_and_needs_only_the_standard_library() -> None:
    """It must run on a host that has nothing yet."""
    modules = [ast.parse(path.read_text(), feature_version=(3, 8)) for path in FOLDER.glob("*.py")]
    assert len(modules) > 10
    imports = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom)}
    names = {name for name in names if not f"{name}.".startswith("ktfleet.host.probe.")}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names - {"subprocess"}
    # sh -c 'sudo sh -c "python3 -c ..."': quoted up to three times on its way.
    assert len(shlex.quote(shlex.quote(shlex.quote(SOURCE)))) < 96 * 1024, "one argument holds 128 KiB at most"


# Any tree.


@given(st.sets(st.integers(0, cpus.CPU_LIMIT - 1)), st.sampled_from(["", "\n", " \n"]))
def test_cpu_lists_round_trip(numbers: set[int], end: str) -> None:
    """The kernel's format, with or without a newline."""
    assert cpus.parse_cpulist(cpulist(numbers) + end) == sorted(numbers)
    assert cpus.parse_cpulist(",".join(map(str, numbers)) + end) == sorted(numbers)


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-2", "1,,2", "1_0", "0-8192", "0-31:2/4", "9" * 30, "\u0661"])
def test_what_is_no_cpu_list(text: str) -> None:
    """Refused with what was seen."""
    with pytest.raises(values.ReadError, match="not a CPU list: seen"):
        cpus.parse_cpulist(text)


@settings(max_examples=50)
@given(st.text(alphabet="0123456789-,\n x'\"\\$", max_size=20), st.text(max_size=20))
def test_parsers_refuse_in_one_way_only(listing: str, text: str) -> None:
    """A value or ReadError: `Reader` knows no other."""
    parsers: list[Callable[[str], object]] = [
        *(cpus.parse_cpulist, values.parse_int, values.parse_ints, values.parse_line, asked.parse_before),
        *(values.parse_count, values.parse_flag, values.parse_hex, devices.parse_bars, devices.parse_node),
        *(
            storage.parse_swaps,
            storage.parse_mounts,
            nvidia.parse_modules,
            units.parse_journald,
            boot.parse_cloud_result,
        ),
        lambda line: boot.parse_grub_kernel("linux " + line),
        lambda line: dimms.parse_smbios(line.encode()),
        lambda line: packages.parse_dpkg(b"Package: " + line.encode(), ["*"]),
        lambda line: apt_conf.parse_apt_conf(line, apt_conf.AptOptions()),
        lambda line: boot.parse_os_release("ID=" + line, "ID"),
        lambda line: boot.parse_grub_cfg("linux /x " + line),
        lambda line: cpus.parse_kib("MemTotal:" + line, "MemTotal"),
        lambda line: cpus.parse_cpuinfo("flags :" + line, "flags"),
    ]
    for parse in parsers:
        for line in (listing, text):
            try:
                parse(line)
            except values.ReadError:
                continue


def garble(root: Path, path: str, kind: str, junk: bytes) -> None:
    """Replace one file or folder of the tree, unless an earlier change took it away."""
    place = root / path
    if not os.path.lexists(place) or not place.parent.is_dir():
        return
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    actions: dict[str, Callable[[], object]] = {
        "missing": lambda: None,
        "junk": lambda: place.write_bytes(junk),
        "folder": place.mkdir,
        "fifo": lambda: os.mkfifo(place),
        "loop": lambda: place.symlink_to(place.name),
        "outside": lambda: place.symlink_to("/etc/passwd"),
        "parent": lambda: place.symlink_to(".."),
    }
    actions[kind]()


ASKED: dict[str, Any] = {
    **asdict(request()),
    "sysctl": list(SYSCTL),
    "sysfs": ["/sys/devices/*/cpu/cpu*/*/*"],
    "files": ["/proc/cmdline"],
    "links": [],
    "before": RECORD,
    "texts": ["/proc/cmdline"],
}
EVERYTHING: dict[str, str | bytes] = {
    RECORD: "{}",
    "/lib/modules/6.1.0-28-amd64/modules.dep": "updates/dkms/nvidia.ko:\n",
    "/lib/modules/6.1.0-28-amd64/updates/dkms/nvidia.ko": module({"version": "570.86.15", "license": "Dual MIT/GPL"}),
    "/run/cloud-init/result.json": '{"v1": {"errors": []}}',
    "/run/reboot-required.pkgs": "linux-base\n",
    "/etc/systemd/journald.conf.d/size.conf": "[Journal]\nSystemMaxUse=1G\n",
    "/etc/apt/apt.conf": 'DPkg::Lock::Timeout "60";\n',
    "/var/lib/dpkg/updates/0001": "",
}
"""What a fresh workstation has not: so that it can be broken, too."""
SHAPE: list[str] = []
"""Every path of the small tree, folders too: filled by the first example."""
KINDS = ["missing", "junk", "folder", "fifo", "loop", "outside", "parent"]
JUNK = st.one_of(st.binary(max_size=30), st.text(alphabet="0123456789-, \n", max_size=12).map(str.encode))
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(KINDS), JUNK), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(CHANGES)
def test_any_broken_tree_is_read_and_explained(changes: list[tuple[int, str, bytes]]) -> None:
    """One line of ASCII that is a state, and a reason for every gap."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        root = write_tree(Path(folder), cores=1, files=EVERYTHING)
        SHAPE[:] = SHAPE or sorted(str(path.relative_to(root)) for path in root.rglob("*"))
        for index, kind, junk in changes:
            garble(root, SHAPE[index % len(SHAPE)], kind, junk)
        record = probe.collect(str(root), **ASKED)
    line = json.dumps(record, allow_nan=False)
    assert line.isascii()
    assert "root:x:" not in line
    assert "secret" not in line
    HostState.model_validate_json(line)
    assert unexplained(record) == []
