"""THE table: the only place where a host setting is named.

Applying, the drift check and docs/settings.md are derived from it. A setting without a reason does not go in.
"""

from __future__ import annotations

from ktfleet.config import HugepagePolicy
from ktfleet.plan.memory import GIGANTIC_PAGES
from ktfleet.plan.row import Layout, Row, Setting, Writer, at_most, constant, every_word

THP_ENABLED = "/sys/kernel/mm/transparent_hugepage/enabled"
THP_DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"
NODE_HUGEPAGES = "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"
GOVERNOR = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
TURBO_OFF = "/sys/devices/system/cpu/intel_pstate/no_turbo"
EPP = "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference"
UNCORE_MIN = "/sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*/min_freq_khz"
DEFAULT_IRQ_AFFINITY = "/proc/irq/default_smp_affinity"
UNCORE_MAX = "/sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*/initial_max_freq_khz"

POSSIBLE_CPUS = "/sys/devices/system/cpu/possible"
SMT_CONTROL = "/sys/devices/system/cpu/smt/control"

READ_TOO = (UNCORE_MAX, GIGANTIC_PAGES, POSSIBLE_CPUS, SMT_CONTROL)
"""sysfs patterns that are no settings themselves but that a decision depends on."""

_THP: dict[HugepagePolicy, str] = {"thp": "always", "hugetlb": "madvise", "off": "never"}
_DEFRAG: dict[HugepagePolicy, str] = {"thp": "always", "hugetlb": "madvise", "off": "madvise"}


MASKED, NOT_MASKED = "masked", "not masked"
ENABLED, NOT_ENABLED = "enabled", "not enabled"

GLIBC_TUNABLES, MEMORY_SWAP_MAX = "GLIBC_TUNABLES", "MemorySwapMax"
WAKE_LATENCY, COMPACTION = "cpu_dma_latency", "compact_memory"
COMPACTED = "before every start"
BANNED_CPUS = "IRQBALANCE_BANNED_CPULIST"
TIME_SYNC = "systemd-timesyncd.service"

_NOT_SERVING = "the server does not run: it takes effect at its next start"

_HELD_BACK = (
    *("nvidia-", "libnvidia-", "linux-modules-nvidia-", "cuda-", "xserver-xorg-video-nvidia"),
    *("libcuda1", "libcudadebugger1", "libnvcuvid1", "firmware-nvidia-"),
    *("linux-image-", "linux-headers-", "linux-modules-", "linux-generic"),
)
"""Beginnings of package names: the driver in the first lines, the kernel in the last."""


def _never_sleep(target: str) -> Row:
    return Row(
        key=target,
        concern="power",
        writer=Writer.MASK,
        want=constant(MASKED),
        why="A server must not sleep. A desktop installation (Ubuntu Desktop's default) suspends after some minutes "
        "without a keyboard, whatever is being served, and sleep loses the GPU's state.",
        source="systemd.special(7) and systemd-sleep.conf(5)",
    )


TABLE: tuple[Row, ...] = (
    Row(
        key="kernel.numa_balancing",
        concern="memory",
        writer=Writer.SYSCTL,
        want=constant("0"),
        why="The expert weights' mappings carry no memory policy of their own (kt-kernel only sets its threads' "
        "policy while they are first touched), so the balancer would unmap, scan and move 130 GiB that already "
        "lie on the right node.",
        source="Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing; read in kt-kernel 0.7.2",
        absent="this kernel is built without automatic NUMA balancing",
    ),
    Row(
        key="vm.zone_reclaim_mode",
        concern="memory",
        writer=Writer.SYSCTL,
        want=constant("0"),
        why="With 1, a node that is nearly full of weights reclaims its own page cache, and stalls, before it "
        "uses the other node's free memory for everything that is not bound.",
        source="Linux Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode",
        absent="this kernel is built without NUMA",
    ),
    Row(
        key="vm.swappiness",
        concern="memory",
        writer=Writer.SYSCTL,
        want=constant("1"),
        why="Nothing is locked in memory (kt-kernel calls no mlock): at the default of 60, reading the 145 GB "
        "checkpoint through the page cache can push expert weights out to swap. 1 keeps swap as the last resort; "
        "0 would risk the out-of-memory killer on a node that is hard-bound.",
        source="Linux Documentation/admin-guide/sysctl/vm.rst, swappiness; read in kt-kernel 0.7.2",
    ),
    Row(
        key=THP_ENABLED,
        concern="memory",
        writer=Writer.SYSFS,
        want=lambda layout: _THP[layout.memory.policy],
        why="kt-kernel's weights are plain aligned_alloc memory without madvise: with 'madvise' none of it became "
        "huge, with 'always' it did. Under the hugetlb policy the pool holds the weights and 'madvise' leaves the "
        "rest to programs that ask; under 'off' nothing is to be huge.",
        source="Linux Documentation/admin-guide/mm/transhuge.rst; tried with kt-kernel 0.7.2, December 2026",
        effect="1-5 % decode rate, noisy, on a single-socket virtual machine; not measured on two sockets",
    ),
    Row(
        key=THP_DEFRAG,
        concern="memory",
        writer=Writer.SYSFS,
        want=lambda layout: _DEFRAG[layout.memory.policy],
        why="The weights are allocated once and used for days. 'always' lets that one allocation wait for "
        "compaction; with 'defer' it would get 4 KiB pages, and khugepaged repairs only 16 MiB every 10 s: "
        "a day for 130 GiB. Where THP does not carry the weights, 'madvise' is the kernel's default.",
        source="Linux Documentation/admin-guide/mm/transhuge.rst, defrag and khugepaged/pages_to_scan",
    ),
    Row(
        key=NODE_HUGEPAGES,
        concern="memory",
        writer=Writer.SYSFS,
        want=lambda layout: str(layout.memory.hugepages_per_node),
        why="2 MiB pages in each node's pool. 0 unless the policy is hugetlb: kt-kernel cannot use a pool by itself, "
        "and since its memory is bound to its node, a pool that nobody uses is memory the weights miss. Written for "
        "each node, because vm.nr_hugepages spreads pages as it likes.",
        source="Linux Documentation/admin-guide/mm/hugetlbpage.rst; read in kt-kernel 0.7.2",
        absent="this kernel has no 2 MiB huge page pools",
        absent_if=lambda wanted: wanted == "0",
    ),
    Row(
        key=GOVERNOR,
        concern="cpu",
        writer=Writer.SYSFS,
        want=constant("performance"),
        why="A token wakes each worker 43 times, for well under a millisecond of AVX-512 work: too short for a "
        "governor that first waits for load. (intel_pstate offers performance and powersave only.)",
        source="Linux Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst",
        absent="no cpufreq directory: the BIOS controls the clocks (set its power control to OS) or the CPU is virtual",
    ),
    Row(
        key=TURBO_OFF,
        concern="cpu",
        writer=Writer.SYSFS,
        want=constant("0"),
        why="Turbo on. The AVX-512 base variant of kt-kernel emulates VNNI and is limited by instructions as much as "
        "by memory, so clock is speed.",
        source="Linux Documentation/admin-guide/pm/intel_pstate.rst, no_turbo; kt-kernel 0.7.2 measured on one core: "
        "avx512_vnni takes 0.63 of avx512_base's time",
        remedy="run deploy.py again; if it stays, enable Turbo Boost in the BIOS",
        absent="no intel_pstate driver: the BIOS controls turbo, or the CPU is virtual",
    ),
    Row(
        key=EPP,
        concern="cpu",
        writer=Writer.SYSFS,
        want=constant("performance"),
        why="With hardware P-states the processor picks the clock itself; this is the only hint that it takes. The "
        "performance governor sets it too, so another value shows that something else writes here.",
        source="Linux Documentation/admin-guide/pm/intel_pstate.rst, Energy vs Performance Hints",
        absent="no hardware P-states (HWP): the governor alone decides",
    ),
    Row(
        key=UNCORE_MIN,
        concern="cpu",
        writer=Writer.SYSFS,
        want=lambda layout: layout.uncore_max_khz or "initial_max_freq_khz",
        why="The uncore (mesh and memory controllers) carries every byte of weights; at a low clock it costs bandwidth "
        "and it rises only after load was seen. Its lowest clock is set to the highest that the firmware allows.",
        source="Linux Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
        absent="no intel_uncore_frequency driver for this CPU, or it is virtual",
    ),
    Row(
        key=DEFAULT_IRQ_AFFINITY,
        concern="cpu",
        writer=Writer.SYSFS,
        want=lambda layout: layout.other_mask,
        shown="a mask of the CPUs that carry no worker",
        why="Where an interrupt goes that nobody has placed. A worker that is interrupted keeps all others waiting at "
        "the end of the layer. Drivers that are loaded later (NVIDIA's) start with it; interrupts that a driver "
        "places itself, one for each CPU (NVMe), stay where the I/O is issued.",
        source="Linux Documentation/core-api/irq/irq-affinity.rst",
        effect="not measured for interrupts; another thread on a worker's core took a kt-kernel call from 0.28 to 8 ms",
    ),
    Row(
        key=BANNED_CPUS,
        concern="cpu",
        writer=Writer.IRQBALANCE,
        want=lambda layout: layout.worker_cpus,
        shown="the CPUs that carry a worker",
        why="irqbalance moves interrupts to idle CPUs, and between two tokens every worker looks idle. It is kept, for "
        "the other CPUs, and never given a worker's.",
        source="irqbalance(1), IRQBALANCE_BANNED_CPULIST (1.8.0 and newer; Debian 12 ignores the older mask)",
        absent="irqbalance does not run: the default affinity decides alone",
        remedy="run deploy.py again; if it stays, `systemctl cat irqbalance` shows what replaces it",
    ),
    *map(_never_sleep, ("sleep.target", "suspend.target", "hibernate.target", "hybrid-sleep.target")),
    Row(
        key=WAKE_LATENCY,
        concern="service",
        writer=Writer.SERVER,
        want=lambda layout: None if layout.config.wake_latency_us is None else str(layout.config.wake_latency_us),
        holds=at_most,
        why="Microseconds, held while the server runs and not longer. Each layer of each token wakes the workers from "
        "a condition variable, 86 times a token; a core in C6 takes 133 microseconds (92 without package C6) "
        "to come back, one in C1E 10. 20 forbids C6 and allows C1E, which still saves most of the power.",
        source="Linux Documentation/power/pm_qos_interface.rst; exit latencies of Linux' intel_idle for Skylake-SP",
        absent=_NOT_SERVING,
        remedy="look at `systemctl status ktfleet-latency`",
    ),
    Row(
        key=COMPACTION,
        concern="service",
        writer=Writer.SERVER,
        want=constant(COMPACTED),
        why="After days of uptime the page cache has fragmented the nodes, and a restarted server would get fewer huge "
        "pages than the first one had. What was only cached is dropped (139 GB of cached weights and 139 GB of loaded "
        "ones do not fit in 256 GB anyway) and memory is compacted before each start.",
        source="Linux Documentation/admin-guide/sysctl/vm.rst, compact_memory and drop_caches",
        absent=_NOT_SERVING,
        remedy="restart the server",
    ),
    Row(
        key=MEMORY_SWAP_MAX,
        concern="service",
        writer=Writer.SERVER,
        want=constant("0"),
        why="The server's memory never goes to swap, whatever the rest of the machine does: a weight that has to be "
        "read back from a disk costs more than the token it belongs to.",
        source="systemd.resource-control(5), MemorySwapMax; Linux Documentation/admin-guide/cgroup-v2.rst",
        absent=_NOT_SERVING,
        remedy="restart the server",
    ),
    Row(
        key=GLIBC_TUNABLES,
        concern="service",
        writer=Writer.SERVER,
        want=lambda layout: "glibc.malloc.hugetlb=2" if layout.memory.policy == "hugetlb" else None,
        shown="glibc.malloc.hugetlb=2 (hugetlb), nothing (thp and off)",
        why="kt-kernel asks malloc for its weights and nothing else: with this tunable malloc takes them from the huge "
        "page pool, and from ordinary memory once the pool is empty. Without it the pool is lost memory.",
        source="The GNU C Library manual, Memory Allocation Tunables (glibc 2.35 and newer)",
        effect="a malloc of 64 MiB came from the pool, whole (Debian 12 in a virtual machine); not run at full size",
        absent=_NOT_SERVING,
        remedy="restart the server",
    ),
    Row(
        key="DPkg::Lock::Timeout",
        concern="system",
        writer=Writer.APT,
        want=constant("600"),
        why="Seconds. A fresh system installs updates in its first minutes; without it every apt call in that time "
        "fails at once instead of waiting for its turn.",
        source="apt.conf(5) and apt-get(8); pyinfra's apt operations do not wait",
    ),
    Row(
        key="Unattended-Upgrade::Package-Blacklist",
        concern="system",
        writer=Writer.APT,
        want=constant(" ".join(_HELD_BACK)),
        holds=every_word,
        why="Driver and kernel are upgraded together, by a deploy: a driver library that is newer than the loaded "
        "module ends in 'Driver/library version mismatch' (269 restarts in one report), a new kernel without its "
        "module in no GPU at all. Other security updates go on.",
        source="unattended-upgrades' README (names are matched from their beginning); a homelab's report, 2026",
    ),
    Row(
        key="Unattended-Upgrade::Automatic-Reboot",
        concern="system",
        writer=Writer.APT,
        want=constant("false"),
        why="A server that loads for five minutes is not to be rebooted by a timer; a deploy reboots it when that "
        "is needed, and proves it afterwards.",
        source="unattended-upgrades' README, Automatic-Reboot",
    ),
    Row(
        key="SystemMaxUse",
        concern="system",
        writer=Writer.JOURNALD,
        want=constant("1G"),
        why="The journal may otherwise grow to 4 GiB of the disk that holds the serving stack. 1 GiB is weeks of a "
        "server's log, enough to look up when the GPU's first error came.",
        source="journald.conf(5), SystemMaxUse",
    ),
    Row(
        key=TIME_SYNC,
        concern="system",
        writer=Writer.ENABLED,
        want=constant(ENABLED),
        why="A clock that runs wrong breaks TLS, so every download, and makes logs and results of several hosts "
        "impossible to compare. Another time service that is enabled (chrony, ntpsec, openntpd) is as good.",
        source="systemd-timesyncd.service(8)",
    ),
    Row(
        key="transparent_hugepage",
        concern="kernel",
        writer=Writer.CMDLINE,
        want=lambda layout: _THP[layout.memory.policy],
        takes=tuple(_THP.values()),
        why="Opt-in. The same as the sysfs row, from the first process on: only of use for services that start "
        "before ktfleet-sysfs.service.",
        source="Linux Documentation/admin-guide/kernel-parameters.txt",
    ),
    Row(
        key="mitigations",
        concern="kernel",
        writer=Writer.CMDLINE,
        want=constant("off"),
        takes=("off",),
        why="Opt-in. Removes the CPU vulnerability mitigations, which make system calls dearer. Decoding makes few; "
        "expect little, measure before and after, and keep it only on a machine that runs nothing untrusted.",
        source="Linux Documentation/admin-guide/kernel-parameters.txt, mitigations",
    ),
)

OPT_INS = tuple(row.key for row in TABLE if row.opt_in)


def resolve(layout: Layout) -> tuple[Setting, ...]:
    """The settings that this layout asks for, in the table's order."""
    asked = layout.config.kernel_command_line
    return _wanted(layout, [row for row in TABLE if not row.opt_in or row.key in asked])


def not_asked_for(layout: Layout) -> tuple[Setting, ...]:
    """The opt-in rows that are not taken, with the value that ktfleet would have given them."""
    asked = layout.config.kernel_command_line
    return _wanted(layout, [row for row in TABLE if row.opt_in and row.key not in asked])


def _wanted(layout: Layout, rows: list[Row]) -> tuple[Setting, ...]:
    values = ((row, row.want(layout)) for row in rows)
    return tuple(Setting(row, value) for row, value in values if value is not None)
