"""Write captured trees (proc/, sys/, etc/, boot/) as the kernel of a 2-socket Xeon would show them.

The defaults are the fleet's workstation under Debian 12: 2x Xeon Gold 6138 with 20 cores, 256 GiB in 8 DIMMs on
4 of 6 channels a socket, an RTX 5090 without its driver, one NVMe disk.
Core numbers have the gaps of the real chip (0-4, 8-12, 16-20, 24-28), so that nobody counts on 0..19.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Literal

Numbering = Literal["linear", "adjacent", "even_odd"]

CPU_MODEL = "Intel(R) Xeon(R) Gold 6138 CPU @ 2.00GHz"

CPU_FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush dts acpi mmx fxsr sse "
    "sse2 ss ht tm pbe syscall nx pdpe1gb rdtscp lm constant_tsc art arch_perfmon pebs bts rep_good nopl "
    "xtopology nonstop_tsc cpuid aperfmperf pni pclmulqdq dtes64 monitor ds_cpl vmx smx est tm2 ssse3 sdbg "
    "fma cx16 xtpr pdcm pcid dca sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave avx f16c "
    "rdrand lahf_lm abm 3dnowprefetch cpuid_fault epb cat_l3 cdp_l3 pti intel_ppin ssbd mba ibrs ibpb stibp "
    "tpr_shadow flexpriority ept vpid ept_ad fsgsbase tsc_adjust bmi1 hle avx2 smep bmi2 erms invpcid rtm "
    "cqm mpx rdt_a avx512f avx512dq rdseed adx smap clflushopt clwb intel_pt avx512cd avx512bw avx512vl "
    "xsaveopt xsavec xgetbv1 xsaves cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local dtherm ida arat pln "
    "pts hwp hwp_act_window hwp_epp hwp_pkg_req vnmi pku ospke md_clear flush_l1d arch_capabilities"
)
"""/proc/cpuinfo's flags of a Xeon Gold 6138 (Skylake-SP: no avx512_vnni, no amx) under Linux 6.1."""

SYSCTL = {
    "kernel.nmi_watchdog": "1",
    "kernel.numa_balancing": "1",
    "net.ipv4.tcp_rmem": "4096\t131072\t6291456",
    "vm.max_map_count": "65530",
    "vm.overcommit_memory": "0",
    "vm.stat_interval": "1",
    "vm.swappiness": "60",
    "vm.zone_reclaim_mode": "0",
}
"""What a fresh Debian 12 shows; `sysctl` of write_tree adds to it."""

CMDLINE = "root=UUID=6f2c6a0e-3c5b-4a53-8ef0-6f3c1d6f0b5e ro quiet"
PRETTY_NAMES = {
    "debian": "Debian GNU/Linux {}",
    "ubuntu": "Ubuntu {} LTS",
}
GRUB_CFG = """\
set default="0"
menuentry 'GNU/Linux' --class gnu-linux $menuentry_id_option 'gnulinux-simple' {{
	load_video
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	echo	'Loading Linux {kernel} ...'
	linux	/boot/vmlinuz-{kernel} {cmdline} $vt_handoff
	initrd	/boot/initrd.img-{kernel}
}}
submenu 'Advanced options' {{
	menuentry 'recovery mode' {{
		linux	/boot/vmlinuz-{kernel} {cmdline} single
	}}
}}
"""

GPU = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
"""Where the RTX 5090 of write_tree lies; /sys/bus/pci/devices links to it."""
MOUNTS = """\
proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
/dev/nvme0n1p2 / ext4 rw,relatime,errors=remount-ro 0 0
tmpfs /run tmpfs rw,nosuid,nodev,size=26369696k,mode=755 0 0
/dev/nvme0n1p1 /boot/efi vfat rw,relatime,fmask=0077,dmask=0077 0 0
/dev/nvme0n1p3 /srv/model\\040files xfs ro,relatime 0 0
"""
DPKG_STATUS = """\
Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.21.22

Package: irqbalance
Status: install ok installed
Architecture: amd64
Version: 1.9.2-1

Package: systemd-timesyncd
Status: deinstall ok config-files
Architecture: amd64
Version: 252.38-1~deb12u1
"""
MODULES = "nvme 57344 2 - Live 0x0000000000000000\next4 983040 1 - Live 0x0000000000000000\n"
BARS = """\
0x00000000b4000000 0x00000000b7ffffff 0x0000000000040200
0x000038f000000000 0x000038f7ffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x000038f800000000 0x000038f801ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000005000 0x000000000000507f 0x0000000000040101
0x00000000b8000000 0x00000000b807ffff 0x0000000000046200
"""
"""The `resource` of an RTX 5090 with resizable BAR: 32 GiB."""


@dataclass(frozen=True)
class Pu:
    """One logical CPU and where it sits; `core` counts from 0 within the socket."""

    cpu: int
    socket: int
    core: int
    node: int

    @property
    def core_id(self) -> int:
        """The number that the chip reports: five cores, then a gap of three."""
        return self.core // 5 * 8 + self.core % 5


def pus(
    sockets: int = 2,
    cores: int = 20,
    threads: int = 2,
    numbering: Numbering = "linear",
    nodes_per_socket: int = 1,
    lost: Collection[tuple[int, int]] = (),
) -> list[Pu]:
    """Every logical CPU by number; a lost (socket, core) is not enumerated, so later numbers move up."""
    # Where socket, core and thread stand in a seat, from the slowest changing to the fastest.
    slowest = {"linear": (2, 0, 1), "adjacent": (0, 1, 2), "even_odd": (2, 1, 0)}[numbering]
    seats = [
        (socket, core, thread)
        for socket in range(sockets)
        for core in range(cores)
        for thread in range(threads)
        if (socket, core) not in lost
    ]
    return [
        Pu(cpu, socket, core, socket * nodes_per_socket + core * nodes_per_socket // cores)
        for cpu, (socket, core, _) in enumerate(sorted(seats, key=itemgetter(*slowest)))
    ]


def cpulist(cpus: Iterable[int]) -> str:
    """The kernel's list format: "0-19,40-59"."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def put(root: Path, path: str, text: str | bytes) -> Path:
    """Write one file of the captured host, by its absolute path there."""
    file = root / path.lstrip("/")
    data = text.encode() if isinstance(text, str) else text
    try:
        file.write_bytes(data)
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return file


def link(root: Path, path: str, target: str) -> None:
    """Make one symlink of the captured host, unless something is there."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.is_symlink():
        place.symlink_to(target)


def write_tree(
    dir: Path,
    *,
    sockets: int = 2,
    cores: int = 20,
    threads: int = 2,
    numbering: Numbering = "linear",
    node_mib: Sequence[int] | None = None,
    free_mib: Sequence[int] | None = None,
    nodes_per_socket: int = 1,
    lost: Collection[tuple[int, int]] = (),
    offline: Collection[int] = (),
    cpu_model: str = CPU_MODEL,
    flags: str = CPU_FLAGS,
    sysctl: Mapping[str, str] | None = None,
    thp: str = "always [madvise] never",
    thp_defrag: str = "always defer defer+madvise [madvise] never",
    os: tuple[str, str] = ("debian", "12"),
    kernel: str = "6.1.0-28-amd64",
    cmdline: str = CMDLINE,
    next_cmdline: str | None = None,
    boot_id: str = "3b9f0a52-6f0c-4a8e-9a51-0d6c2c9a7e11",
    loader: Literal["grub", "systemd-boot"] | None = "grub",
    governors: str | None = "performance",
    driver: str = "intel_pstate",
    hugepages: Sequence[int] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write the tree below `dir` and return `dir`.

    One entry a node: `node_mib` (default 128 GiB a socket, shared by its nodes; 0 = no DIMMs there),
    `free_mib` (default 95 % of that), `hugepages` (2 MiB each, all free). `lost` are (socket, core) that the
    firmware hides; `offline` are logical CPUs switched off by Linux. `governors=None`: the BIOS owns power,
    no cpufreq. `next_cmdline` (default: the running one) goes into grub.cfg. `files` adds or replaces, by
    absolute path. To lose a file, delete it afterwards.
    """
    seats = pus(sockets, cores, threads, numbering, nodes_per_socket, lost)
    nodes = sockets * nodes_per_socket
    mib = list(node_mib) if node_mib is not None else [128 * 1024 // nodes_per_socket] * nodes
    free = list(free_mib) if free_mib is not None else [size * 95 // 100 for size in mib]
    pages = list(hugepages) if hugepages is not None else [0] * nodes
    if not len(mib) == len(free) == len(pages) == nodes:
        raise ValueError(f"sizes for {nodes} nodes wanted: seen {mib}, {free}, {pages}")
    online = [pu for pu in seats if pu.cpu not in offline]
    _write_cpus(dir, seats, online, cpu_model, flags)
    if governors is not None:
        _write_cpufreq(dir, online, driver, governors)
    _write_nodes(dir, online, mib, free, pages, nodes_per_socket)
    _write_kernel(dir, kernel, boot_id, {**SYSCTL, **(sysctl or {})})
    # GRUB names the kernel, the EFI stub that systemd-boot starts gets the initrd.
    first = f"BOOT_IMAGE=/boot/vmlinuz-{kernel}" if loader == "grub" else f"initrd=\\{kernel}\\initrd.img"
    put(dir, "/proc/cmdline", f"{first} {cmdline}\n")
    put(dir, "/proc/meminfo", _meminfo("", sum(mib), sum(free), sum(pages)))
    put(dir, "/sys/kernel/mm/transparent_hugepage/enabled", thp + "\n")
    put(dir, "/sys/kernel/mm/transparent_hugepage/defrag", thp_defrag + "\n")
    _write_os(dir, *os)
    _write_loader(dir, loader, kernel, cmdline if next_cmdline is None else next_cmdline)
    _write_idle(dir)
    _write_dimms(dir, sockets)
    _write_devices(dir, kernel)
    _write_software(dir)
    for path, text in (files or {}).items():
        put(dir, path, text)
    return dir


def _write_cpus(root: Path, seats: list[Pu], online: list[Pu], model: str, flags: str) -> None:
    base = "/sys/devices/system/cpu"
    everyone = cpulist(pu.cpu for pu in seats)
    for name in ("possible", "present"):
        put(root, f"{base}/{name}", everyone + "\n")
    put(root, f"{base}/online", cpulist(pu.cpu for pu in online) + "\n")
    put(root, f"{base}/offline", cpulist(pu.cpu for pu in seats if pu not in online) + "\n")
    cores: dict[tuple[int, int], list[int]] = {}
    for pu in online:
        cores.setdefault((pu.socket, pu.core), []).append(pu.cpu)
    threads = max((len(cpus) for cpus in cores.values()), default=0)
    put(root, f"{base}/smt/active", f"{int(threads > 1)}\n")
    put(root, f"{base}/smt/control", "on\n" if threads > 1 else "off\n")
    for pu in seats:
        if pu.cpu:
            put(root, f"{base}/cpu{pu.cpu}/online", f"{int(pu in online)}\n")
    for pu in online:
        _write_topology(root, pu, cores[pu.socket, pu.core])
    put(root, "/proc/cpuinfo", "".join(_cpuinfo(pu, cores, model, flags) for pu in online))


def _write_topology(root: Path, pu: Pu, siblings: list[int]) -> None:
    folder = f"/sys/devices/system/cpu/cpu{pu.cpu}"
    put(root, f"{folder}/topology/core_id", f"{pu.core_id}\n")
    put(root, f"{folder}/topology/physical_package_id", f"{pu.socket}\n")
    put(root, f"{folder}/topology/thread_siblings_list", cpulist(siblings) + "\n")
    put(root, f"{folder}/topology/core_cpus_list", cpulist(siblings) + "\n")
    link(root, f"{folder}/node{pu.node}", f"../../node/node{pu.node}")


def _cpuinfo(pu: Pu, cores: Mapping[tuple[int, int], list[int]], model: str, flags: str) -> str:
    socket = [cpus for (number, _), cpus in cores.items() if number == pu.socket]
    return (
        f"processor\t: {pu.cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
        f"model name\t: {model}\nstepping\t: 4\nphysical id\t: {pu.socket}\n"
        f"siblings\t: {sum(map(len, socket))}\ncore id\t\t: {pu.core_id}\ncpu cores\t: {len(socket)}\n"
        f"flags\t\t: {flags}\nbugs\t\t: spectre_v1 spectre_v2\n\n"
    )


def _write_cpufreq(root: Path, online: list[Pu], driver: str, governor: str) -> None:
    for pu in online:
        folder = f"/sys/devices/system/cpu/cpu{pu.cpu}/cpufreq"
        put(root, f"{folder}/scaling_driver", driver + "\n")
        put(root, f"{folder}/scaling_governor", governor + "\n")
        put(root, f"{folder}/scaling_available_governors", "performance powersave\n")
        put(root, f"{folder}/energy_performance_preference", "performance\n")
    put(root, "/sys/devices/system/cpu/intel_pstate/status", "active\n")
    put(root, "/sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")


def _write_nodes(
    root: Path, online: list[Pu], mib: list[int], free: list[int], pages: list[int], per_socket: int
) -> None:
    base = "/sys/devices/system/node"
    put(root, f"{base}/online", cpulist(range(len(mib))) + "\n")
    put(root, f"{base}/has_memory", cpulist(node for node, size in enumerate(mib) if size) + "\n")
    for node, size in enumerate(mib):
        folder = f"{base}/node{node}"
        put(root, f"{folder}/cpulist", cpulist(pu.cpu for pu in online if pu.node == node) + "\n")
        put(root, f"{folder}/meminfo", _meminfo(f"Node {node} ", size, free[node], pages[node]))
        row = (_distance(node, other, per_socket) for other in range(len(mib)))
        put(root, f"{folder}/distance", " ".join(map(str, row)) + "\n")
        for name in ("nr", "free", "surplus"):
            count = 0 if name == "surplus" else pages[node]
            put(root, f"{folder}/hugepages/hugepages-2048kB/{name}_hugepages", f"{count}\n")


def _distance(node: int, other: int, per_socket: int) -> int:
    if node == other:
        return 10
    return 11 if node // per_socket == other // per_socket else 21


def _meminfo(prefix: str, mib: int, free: int, pages: int) -> str:
    sizes = {"MemTotal": mib, "MemFree": free} | ({} if prefix else {"MemAvailable": free})
    lines = [f"{prefix}{name + ':':15} {size * 1024:8d} kB\n" for name, size in sizes.items()]
    lines += [f"{prefix}{name + ':':15} {pages:8d}\n" for name in ("HugePages_Total", "HugePages_Free")]
    return "".join(lines)


def _write_kernel(root: Path, release: str, boot_id: str, sysctl: Mapping[str, str]) -> None:
    put(root, "/proc/sys/kernel/osrelease", release + "\n")
    put(root, "/proc/sys/kernel/random/boot_id", boot_id + "\n")
    for name, value in sysctl.items():
        put(root, "/proc/sys/" + name.replace(".", "/"), value + "\n")


def _write_os(root: Path, name: str, version: str) -> None:
    pretty = PRETTY_NAMES.get(name, name + " {}").format(version)
    put(root, "/usr/lib/os-release", f'PRETTY_NAME="{pretty}"\nVERSION_ID="{version}"\nID={name}\n')
    link(root, "/etc/os-release", "../usr/lib/os-release")


def _write_loader(root: Path, loader: str | None, kernel: str, cmdline: str) -> None:
    if loader == "grub":
        put(root, "/boot/grub/grub.cfg", GRUB_CFG.format(kernel=kernel, cmdline=cmdline))
        put(root, "/etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    elif loader == "systemd-boot":
        put(root, "/boot/efi/loader/loader.conf", "timeout 3\n")
        put(root, "/etc/kernel/cmdline", cmdline + "\n")


def _write_idle(root: Path) -> None:
    put(root, "/sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n")
    for number, (name, latency) in enumerate((("POLL", 0), ("C1", 2), ("C1E", 10), ("C6", 133))):
        folder = f"/sys/devices/system/cpu/cpu0/cpuidle/state{number}"
        for file, value in (("name", name), ("latency", latency), ("disable", 0)):
            put(root, f"{folder}/{file}", f"{value}\n")
    put(root, "/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")


def _write_dimms(root: Path, sockets: int) -> None:
    """Per socket two controllers of three channels, two of them with a DIMM."""
    slots = []
    for socket in range(sockets):
        for number in range(6):
            controller, channel = divmod(number, 3)
            size = 32 * 1024 if channel < 2 else 0
            slots.append(smbios_slot(f"P{socket + 1}-DIMM{'ABCDEF'[number]}1", "", size))
            if size:
                folder = f"/sys/devices/system/edac/mc/mc{2 * socket + controller}/dimm{2 * channel}"
                put(root, f"{folder}/dimm_label", f"CPU_SrcID#{socket}_MC#{controller}_Chan#{channel}_DIMM#0\n")
                put(root, f"{folder}/size", f"{size}\n")
    put(root, "/sys/firmware/dmi/tables/DMI", smbios(slots))
    put(root, "/sys/class/dmi/id/sys_vendor", "Supermicro\n")


def smbios_slot(label: str, bank: str, mib: int, rated: int = 2666, configured: int = 2666) -> bytes:
    """One structure of type 17 (memory device)."""
    fields = bytearray(0x5C)
    fields[:4] = (17, len(fields), 0, 17)
    for offset, size, value in (
        (0x0C, 2, 0x7FFF if mib >= 0x7FFF else mib),
        (0x10, 1, 1),
        (0x11, 1, 2 if bank else 0),
        (0x15, 2, rated if mib else 0),
        (0x1C, 4, mib if mib >= 0x7FFF else 0),
        (0x20, 2, configured if mib else 0),
    ):
        fields[offset : offset + size] = value.to_bytes(size, "little")
    return bytes(fields) + b"".join(text.encode() + b"\0" for text in (label, bank) if text) + b"\0"


def smbios(slots: Iterable[bytes]) -> bytes:
    """An SMBIOS table: a processor without strings, the slots, the end."""
    return bytes((4, 8, 0, 4, 0, 0, 0, 0)) + b"\0\0" + b"".join(slots) + bytes((127, 4, 0, 127)) + b"\0\0"


def module(info: Mapping[str, str]) -> bytes:
    """A kernel module: an ELF file with the section .modinfo."""
    modinfo = b"".join(f"{key}={value}\0".encode() for key, value in info.items())
    names = b"\0.shstrtab\0.modinfo\0"
    start = 64 + len(names) + len(modinfo)

    def section(name: int, offset: int, size: int) -> bytes:
        return name.to_bytes(4, "little") + bytes(20) + b"".join(n.to_bytes(8, "little") for n in (offset, size))

    sections = ((0, 0, 0), (1, 64, len(names)), (11, 64 + len(names), len(modinfo)))
    numbers = (0x40, 0, 0, 64, 3, 1)  # Sizes of the headers, how many sections, which one has the names.
    head = b"\x7fELF\x02\x01".ljust(40, b"\0") + start.to_bytes(8, "little") + bytes(4)
    head += b"".join(number.to_bytes(2, "little") for number in numbers)
    return head + names + modinfo + b"".join(section(*each).ljust(64, b"\0") for each in sections)


def _write_devices(root: Path, kernel: str) -> None:
    texts = {"vendor": "0x10de", "device": "0x2b85", "class": "0x030000", "numa_node": "0", "boot_vga": "1"}
    texts |= {"current_link_width": "16", "max_link_width": "16", "resource": BARS.rstrip()}
    texts |= {"current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    for file, text in texts.items():
        put(root, f"{GPU}/{file}", text + "\n")
    nvme = "/sys/devices/pci0000:16/0000:16:00.0/0000:17:00.0"
    put(root, f"{nvme}/class", "0x010802\n")
    for device in (GPU, nvme):
        link(root, f"/sys/bus/pci/devices/{device[-12:]}", "../../.." + device.removeprefix("/sys"))
    disk = f"{nvme}/nvme/nvme0/nvme0n1"
    for file, text in (("size", "3907029168"), ("queue/rotational", "0"), ("device/model", "Samsung SSD 990 PRO 2TB ")):
        put(root, f"{disk}/{file}", text + "\n")
    link(root, "/sys/block/nvme0n1", ".." + disk.removeprefix("/sys"))
    put(root, "/proc/modules", MODULES)
    put(root, f"/lib/modules/{kernel}/modules.dep", "kernel/drivers/nvme/host/nvme.ko: kernel/lib/crc64.ko\n")
    secure_boot = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    put(root, secure_boot, b"\x06\0\0\0\0")


def _write_software(root: Path) -> None:
    put(root, "/proc/self/mounts", MOUNTS)
    link(root, "/proc/mounts", "self/mounts")
    put(root, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
    put(root, "/sys/fs/cgroup/system.slice/memory.max", "max\n")
    put(root, "/sys/fs/cgroup/system.slice/irqbalance.service/cgroup.procs", "812\n")
    put(root, "/sys/fs/cgroup/system.slice/irqbalance.service/memory.max", "max\n")
    put(root, "/proc/812/environ", "PATH=/usr/bin\0TOKEN=secret\0IRQBALANCE_BANNED_CPULIST=2-3\0")
    put(root, "/var/lib/dpkg/status", DPKG_STATUS)
    (root / "var/lib/dpkg/updates").mkdir(parents=True, exist_ok=True)
    put(root, "/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
    put(root, "/etc/group", "root:x:0:\n")
    put(
        root,
        "/etc/apt/apt.conf.d/70debconf",
        'DPkg::Pre-Install-Pkgs {"/usr/sbin/dpkg-preconfigure --apt || true";};\n',
    )
    put(root, "/etc/systemd/journald.conf", "[Journal]\n#SystemMaxUse=\n")
