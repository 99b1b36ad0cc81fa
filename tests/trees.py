"""Write captured trees (proc/, sys/, etc/, boot/) as the kernel of a 2-socket Xeon would show them.

The defaults are the fleet's workstation under Debian 12: 2x Xeon Gold 6138 with 20 cores, 256 GiB.
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
