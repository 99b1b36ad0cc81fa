"""File systems, services, journald, cloud-init, reboots, the clock, small texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ktfleet.host import probe
from ktfleet.host.probe import units
from ktfleet.host.state import Mount, Unit
from tests.trees import link, put
from tests.unit.host.probed import state

ROOT = Mount(mount="/", device="/dev/nvme0n1p2", type="ext4", read_only=False)
MODEL = Mount(mount="/srv/model files", device="/dev/nvme0n1p3", type="xfs", read_only=True)
SLICE = units.SLICE
UNIT = "ktfleet-server.service"
LIMITS = ("memory_max", "memory_high", "memory_swap_max", "cpus", "cpu_max")


def test_mounts_hold_paths(tree: Path) -> None:
    """The longest one that is a whole part of the path; what does not exist yet would lie there, too."""
    link(tree, "/opt/models", "../srv/model files/new")
    asked = ["/", "/run", "/runner", "/srv/model files/new/x", "/srv/model", "/opt/models"]
    seen = state(tree, mounts=asked)
    assert {path: mount for path, mount in seen.mounts.items() if path != "/run"} == {
        "/": ROOT,
        "/runner": ROOT,
        "/srv/model files/new/x": MODEL,
        "/srv/model": ROOT,
        "/opt/models": MODEL,
    }
    assert seen.mounts["/run"].type == "tmpfs"
    assert seen.unreadable["mounts"] == "captured tree: not recorded"


def test_the_last_mount_on_a_point_counts(tree: Path) -> None:
    """An automount before its file system, the initramfs's root before the real one."""
    put(tree, "/proc/self/mounts", "rootfs / rootfs rw 0 0\n/dev/a / ext4 ro 0 0\nnonsense\n")
    assert state(tree, mounts=["/"]).mounts["/"] == Mount(mount="/", device="/dev/a", type="ext4", read_only=True)


def test_no_mount_holds_it(tree: Path) -> None:
    """Nor does anything where a link leads out of the tree."""
    put(tree, "/proc/self/mounts", "x /boot ext4 rw 0 0\n")
    link(tree, "/boot/out", "/etc")
    seen = state(tree, mounts=["/etc", "/boot/out"])
    assert seen.mounts == {}
    assert seen.unreadable["/etc"] == "no mount holds it"
    assert seen.unreadable["/boot/out"] == "leads out of the captured tree"
    (tree / "proc/self/mounts").unlink()
    assert state(tree, mounts=["/"]).unreadable["/proc/mounts"] == "no such file"


def test_mounts_of_this_machine() -> None:
    """Live: with sizes."""
    mount = state(Path("/"), mounts=["/proc/no/such"]).mounts["/proc/no/such"]
    assert (mount.mount, mount.type, mount.size) == ("/proc", "proc", 0)
    assert state(Path("/"), mounts=["/"]).mounts["/"].size == os.statvfs("/").f_blocks * os.statvfs("/").f_frsize


def serve(tree: Path, **files: str) -> None:
    """Run a unit with these cgroup files ("__" is a dot)."""
    put(tree, f"{SLICE}/{UNIT}/cgroup.procs", "902\n901\n")
    put(tree, "/proc/901/environ", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1\0API_TOKEN=secret\0broken\0A=\xff")
    for name, text in files.items():
        put(tree, f"{SLICE}/{UNIT}/{name.replace('__', '.')}", text + "\n")


def test_a_unit_and_its_limits(tree: Path) -> None:
    serve(
        tree, memory__max="300000", memory__high="max", memory__swap__max="0", cpuset__cpus="0-3", cpu__max="max 100000"
    )
    unit = state(tree, units=[UNIT], environment=["GLIBC_TUNABLES", "A", "broken"]).units[UNIT]
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "A": "\xff"}
    assert unit == Unit(active=True, environment=environment, memory_max="300000", memory_swap_max="0", cpus="0-3")


def test_the_tightest_limit_of_the_groups_around_counts(tree: Path) -> None:
    serve(tree, memory__max="max", memory__high="5000", cpu__max="max 100000", cpuset__cpus="")
    for name, text in (("memory.max", "2000"), ("memory.high", "900"), ("cpu.max", "50000 100000")):
        put(tree, f"{SLICE}/{name}", text + "\n")
    put(tree, f"{units.CGROUP}/memory.max", "1000\n")
    unit = state(tree, units=[UNIT]).units[UNIT]
    assert [getattr(unit, name) for name in LIMITS] == ["1000", "900", None, None, "50000 100000"]


def test_units_that_do_not_run(tree: Path) -> None:
    """No group, or an empty one: the slice limits them all the same. With delegation the processes are below."""
    put(tree, f"{SLICE}/memory.max", "5\n")
    put(tree, f"{SLICE}/empty.service/cgroup.procs", "")
    put(tree, f"{SLICE}/deep.service/cgroup.procs", "")
    put(tree, f"{SLICE}/deep.service/inner/cgroup.procs", "77\n")
    units = state(tree, units=["none.service", "empty.service", "deep.service"]).units
    assert units == {
        "none.service": Unit(active=False, memory_max="5"),
        "empty.service": Unit(active=False, memory_max="5"),
        "deep.service": Unit(active=True, memory_max="5"),
    }


def test_no_secret_leaves_the_host(tree: Path) -> None:
    """Only variables that were asked for."""
    serve(tree)
    record = probe.collect(str(tree), units=[UNIT, "irqbalance.service"], environment=["IRQBALANCE_BANNED_CPULIST"])
    assert record["units"]["irqbalance.service"]["environment"] == {"IRQBALANCE_BANNED_CPULIST": "2-3"}
    assert "secret" not in str(record)


def test_without_cgroup_v2_units_are_unknown(tree: Path) -> None:
    (tree / "sys/fs/cgroup/cgroup.controllers").unlink()
    seen = state(tree, units=[UNIT])
    assert (seen.units, seen.unreadable[UNIT]) == ({}, "no cgroup v2 in /sys/fs/cgroup")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, None),
        ({"/etc/systemd/journald.conf": "[Journal]\nSystemMaxUse = 1G \n#SystemMaxUse=2G\n"}, "1G"),
        ({"/etc/systemd/journald.conf": "[Other]\nSystemMaxUse=1G\n"}, None),
        ({"/etc/systemd/journald.conf": "[Journal]\nSystemMaxUse=1G\nSystemMaxUse=\n"}, None),
        ({"/etc/systemd/journald.conf": "[Journal]\nA=b\\\n#c\n c\nSystemMaxUse=1\\\n 2\n"}, "1  2"),
        (
            {
                "/etc/systemd/journald.conf.d/20.conf": "[Journal]\nSystemMaxUse=20\n",
                "/usr/lib/systemd/journald.conf.d/30.conf": "[Journal]\nSystemMaxUse=30\n",
                "/usr/lib/systemd/journald.conf.d/40.txt": "[Journal]\nSystemMaxUse=40\n",
            },
            "30",
        ),
        (
            {
                "/etc/systemd/journald.conf.d/30.conf": "",
                "/run/systemd/journald.conf.d/20.conf": "[Journal]\nSystemMaxUse=20\n",
                "/usr/lib/systemd/journald.conf.d/30.conf": "[Journal]\nSystemMaxUse=30\n",
            },
            "20",
        ),
    ],
)
def test_journald(tree: Path, files: dict[str, str], wanted: str | None) -> None:
    """Later file names win, whatever their folder; of one name, the one in /etc."""
    for path, text in files.items():
        put(tree, path, text)
    assert state(tree, journald=["SystemMaxUse", "Storage"]).journald.get("SystemMaxUse") == wanted


def test_a_masked_drop_in_is_silent(tree: Path) -> None:
    put(tree, "/usr/lib/systemd/journald.conf.d/a.conf", "[Journal]\nSystemMaxUse=30\n")
    link(tree, "/etc/systemd/journald.conf.d/a.conf", "/dev/null")
    seen = state(tree, journald=["SystemMaxUse"])
    assert seen.journald == {}
    assert not any("journald" in key for key in seen.unreadable)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, "absent"),
        ({"disabled": ""}, "absent"),
        ({"enabled": ""}, "running"),
        ({"status.json": "{}"}, "running"),
        ({"enabled": "", "result.json": '{"v1": {"errors": []}}'}, "done"),
        ({"result.json": '{"v1": {"errors": ["x"]}}'}, "error"),
        ({"result.json": "[]"}, None),
        ({"result.json": "[" * 100_000}, None),
    ],
)
def test_cloud_init(tree: Path, files: dict[str, str], wanted: str | None) -> None:
    for name, text in files.items():
        put(tree, f"/run/cloud-init/{name}", text)
    seen = state(tree)
    assert seen.cloud_init == wanted
    assert ("/run/cloud-init/result.json" in seen.unreadable) == (wanted is None)


def test_reboot_required(tree: Path) -> None:
    assert state(tree).reboot_required is None
    put(tree, "/run/reboot-required", "*** System restart required ***\n")
    assert state(tree).reboot_required == ("unknown",)
    put(tree, "/run/reboot-required.pkgs", "linux-base\nlibc6\nlinux-base\n")
    assert state(tree).reboot_required == ("libc6", "linux-base")


def test_the_clock_of_this_machine() -> None:
    """True or False, and no reason."""
    seen = state(Path("/"))
    assert seen.clock_synchronised is not None
    assert "clock_synchronised" not in seen.unreadable


def test_texts_are_cut(tree: Path) -> None:
    put(tree, "/run/ktfleet/lock", " host 12\n")
    put(tree, "/run/long", "x" * 100_000)
    seen = state(tree, texts=["/run/ktfleet/lock", "/run/long", "/run/none"])
    assert seen.texts == {"/run/ktfleet/lock": "host 12", "/run/long": "x" * 4096, "/run/none": None}
    assert seen.unreadable["/run/none"] == "no such file"
