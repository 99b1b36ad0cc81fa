"""Display devices, NVIDIA's module, disks, Secure Boot."""

from __future__ import annotations

import gzip
import lzma
import shutil
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.host.probe import boot, devices, nvidia, values
from ktfleet.host.state import Disk, Display, Nvidia
from tests.trees import GPU, link, module, put
from tests.unit.host.probed import state

MODULES = "/lib/modules/6.1.0-28-amd64"
INFO = {"license": "Dual MIT/GPL", "version": "570.86.15", "srcversion": "1"}
RTX = Display(
    address="0000:3b:00.0",
    vendor="10de",
    device="2b85",
    numa_node=0,
    link_width=16,
    link_speed="2.5 GT/s PCIe",
    max_link_width=16,
    max_link_speed="32.0 GT/s PCIe",
    bar1_bytes=32 << 30,
    boot_vga=True,
)


def test_the_gpu_is_seen_without_its_driver(workstation: Path) -> None:
    """And the NVMe disk is no display."""
    seen = state(workstation)
    assert seen.displays == (RTX,)
    assert (seen.display_manager, seen.nvidia) == (None, Nvidia())
    assert seen.modules == ("ext4", "nvme")


def test_a_desktop_on_the_gpu(tree: Path) -> None:
    """Its driver, the connector with a monitor, the unit that shows the desktop."""
    link(tree, f"{GPU}/driver", "../../../../bus/pci/drivers/nvidia")
    for connector, status in (("card0-DP-1", "disconnected"), ("card0-HDMI-A-1", "connected")):
        put(tree, f"{GPU}/drm/card0/{connector}/status", status + "\n")
    put(tree, "/sys/module/nvidia/version", "570.86.15\n")
    link(tree, devices.DISPLAY_MANAGER, "/lib/systemd/system/gdm3.service")
    seen = state(tree)
    assert seen.displays == (RTX.model_copy(update={"driver": "nvidia", "monitors": ("HDMI-A-1",)}),)
    assert (seen.display_manager, seen.nvidia.loaded) == ("gdm3.service", "570.86.15")


def test_a_masked_display_manager_is_none(tree: Path) -> None:
    link(tree, devices.DISPLAY_MANAGER, "/dev/null")
    assert state(tree).display_manager is None


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("numa_node", "-1", "the firmware names no node"),
        ("vendor", "10de", "not a hexadecimal number: seen '10de'"),
        ("resource", "0x0 0x0 0x0\n0x10 0x1f 0x200", "no prefetchable memory region"),
        ("boot_vga", "2", "neither 0 nor 1: seen '2'"),
    ],
)
def test_what_the_device_does_not_tell(tree: Path, file: str, text: str, why: str) -> None:
    put(tree, f"{GPU}/{file}", text + "\n")
    assert state(tree).unreadable[f"{devices.PCI}/0000:3b:00.0/{file}"] == why


def test_without_pci(tree: Path) -> None:
    shutil.rmtree(tree / devices.PCI[1:])
    seen = state(tree)
    assert (seen.displays, seen.unreadable[devices.PCI]) == (None, "no such file")


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("updates/dkms/nvidia.ko", module(INFO)),
        ("updates/dkms/nvidia-current.ko", module(INFO)),
        ("nvidia.ko", module(INFO)),
        ("kernel/nvidia-570-open/nvidia.ko.xz", lzma.compress(module(INFO))),
        ("extra/nvidia.ko.gz", gzip.compress(module(INFO))),
    ],
)
def test_nvidia_on_disk(tree: Path, path: str, data: bytes) -> None:
    """Where modules.dep says; its siblings are other modules."""
    siblings = (
        "nvidia-drm",
        "nvidia-uvm",
        "nvidia-modeset",
        "nvidia-current-drm",
        "i2c-nvidia-gpu",
        "forcedeth-nvidia",
    )
    lines = [f"kernel/a/{name}.ko: x.ko\n" for name in siblings]
    put(tree, f"{MODULES}/modules.dep", "".join([*lines, f"{path}: kernel/drivers/video/nvidia.ko\n"]))
    put(tree, f"{MODULES}/{path}", data)
    assert state(tree).nvidia == Nvidia(on_disk="570.86.15", license="Dual MIT/GPL")


@pytest.mark.parametrize(
    ("suffix", "data", "why"),
    [
        ("", b"x", "not a 64-bit ELF file"),
        ("", module(INFO).replace(b".modinfo", b".nothing"), "no section .modinfo"),
        ("", module(INFO)[:40] + b"\xff" * 24, "broken ELF file"),
        (".xz", b"x", "cannot be unpacked"),
        (".gz", b"xyz", "cannot be unpacked"),
        (".zst", b"x", "compressed with zstd" if sys.version_info < (3, 14) else "cannot be unpacked"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_read(tree: Path, suffix: str, data: bytes, why: str) -> None:
    path = f"{MODULES}/extra/nvidia.ko{suffix}"
    put(tree, f"{MODULES}/modules.dep", f"extra/nvidia.ko{suffix}:\n")
    put(tree, path, data)
    seen = state(tree)
    assert seen.nvidia == Nvidia()
    assert seen.unreadable[path].startswith(why)


@given(st.binary(max_size=80), st.integers(0, 400))
def test_any_module_is_parsed_or_refused(junk: bytes, at: int) -> None:
    data = module(INFO)
    file = BytesIO(data[:at] + junk + data[at + len(junk) :])
    with suppress(values.ReadError):
        nvidia.parse_modinfo(file)


def test_disks_are_neither_partitions_nor_made_of_others(tree: Path) -> None:
    names = ("loop0", "dm-0", "md127", "sr0", "zram0", "ram1", "nvme0c0n1", "mmcblk0boot0", "sda", "vdb")
    for name in names:
        put(tree, f"/sys/block/{name}/size", "2048\n")
    put(tree, "/sys/block/sda/queue/rotational", "1\n")
    put(tree, "/sys/block/sda/device/model", "ST4000\n")
    seen = state(tree)
    assert seen.disks == (
        Disk(name="nvme0n1", size=3907029168 * 512, rotational=False, model="Samsung SSD 990 PRO 2TB"),
        Disk(name="sda", size=1 << 20, rotational=True, model="ST4000"),
        Disk(name="vdb", size=1 << 20),
    )
    assert seen.unreadable["/sys/block/vdb/queue/rotational"] == "no such file"


@pytest.mark.parametrize(
    ("data", "wanted", "why"),
    [(b"\6\0\0\0\1", True, None), (b"\6\0\0\0\0", False, None), (b"\1", None, "not 5 bytes")],
)
def test_secure_boot(tree: Path, data: bytes, wanted: bool | None, why: str | None) -> None:
    put(tree, boot.SECURE_BOOT, data)
    seen = state(tree)
    assert (seen.boot.efi, seen.boot.secure_boot) == (True, wanted)
    assert seen.unreadable.get(boot.SECURE_BOOT) == why


def test_firmware_without_secure_boot(tree: Path) -> None:
    """Variables, but not this one; no variables mounted; no EFI at all."""
    (tree / boot.SECURE_BOOT[1:]).unlink()
    assert state(tree).boot.secure_boot is None
    put(tree, f"{boot.EFI}/efivars/BootOrder-1", b"")
    assert state(tree).boot.secure_boot is False
    shutil.rmtree(tree / boot.EFI[1:])
    seen = state(tree)
    assert (seen.boot.efi, seen.boot.secure_boot) == (False, False)


def test_the_kernel_of_the_next_boot(tree: Path) -> None:
    put(tree, "/boot/grub/grub.cfg", "linux /@/boot/vmlinuz-6.12.1+deb13~bpo-amd64 ro\n")
    assert state(tree).boot.next_kernel == "6.12.1+deb13~bpo-amd64"
    put(tree, "/boot/grub/grub.cfg", "linux /boot/bzImage ro\n")
    seen = state(tree)
    assert (seen.boot.next_kernel, seen.boot.next_cmdline) == (None, "ro")
    assert seen.unreadable["/boot/grub/grub.cfg"] == "no vmlinuz-RELEASE: seen '/boot/bzImage'"


KEY = "/var/lib/dkms/mok.pub"
VARIABLE, FILE = boot.MOK_LIST[1], boot.MOK_LIST[0]


@pytest.mark.parametrize(("files", "on", "wanted"), [
    ({KEY: b"certificate", FILE: b"head certificate tail"}, True, True),
    ({KEY: b"certificate", VARIABLE: b"\6\0\0\0head certificate tail"}, True, True),
    ({KEY: b"certificate", FILE: b"another"}, True, False),
    ({KEY: b"certificate"}, True, False),
    ({FILE: b"certificate"}, True, False),
    ({KEY: b"", FILE: b"certificate"}, True, False),
    ({KEY: b"certificate", FILE: b"certificate"}, False, None),
])  # fmt: skip
def test_the_key_of_dkms(tree: Path, files: dict[str, bytes], on: bool, wanted: bool | None) -> None:
    put(tree, boot.SECURE_BOOT, b"\6\0\0\0" + bytes([on]))
    for path, data in files.items():
        put(tree, path, data)
    assert state(tree).boot.dkms_key_enrolled is wanted


def test_a_list_of_keys_that_cannot_be_read_is_unknown(tree: Path) -> None:
    put(tree, boot.SECURE_BOOT, b"\6\0\0\0\1")
    put(tree, KEY, b"certificate")
    (tree / FILE.lstrip("/")).mkdir(parents=True)
    seen = state(tree)
    assert (seen.boot.dkms_key_enrolled, seen.unreadable[FILE]) == (None, "is a directory")
