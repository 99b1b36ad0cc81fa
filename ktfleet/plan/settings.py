"""THE table: the only place where a host setting is named.

Applying, the drift check and docs/settings.md are derived from it. A setting without a reason does not go in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ktfleet.config import HugepagePolicy, Workstation
from ktfleet.plan.memory import GIGANTIC_PAGES, Memory

Concern = Literal["kernel", "memory", "cpu", "power"]


class Writer(Enum):
    """How a value is written and read back; the value is the name that people see."""

    SYSCTL = "sysctl"
    SYSFS = "sysfs"
    MASK = "systemd mask"
    CMDLINE = "kernel command line"


@dataclass(frozen=True)
class Layout:
    """What a wanted value may depend on. uncore_max_khz: the highest clock that the uncore allows, if it tells."""

    config: Workstation
    memory: Memory
    uncore_max_khz: str | None = None


@dataclass(frozen=True)
class Row:
    """One setting.

    key: the sysctl's name, the full sysfs path (`*` where the kernel repeats a file for each CPU or node),
    the systemd unit's or the kernel parameter's name. want: the wanted value. absent: why the setting may be
    missing on a host (its verdict is then "skipped"); None: it may not. absent_if: for which wanted values it
    may. effect: what was measured, on what. remedy: what helps when the value is not as wanted. A kernel command
    line row is opt-in; takes: every value that it may be given.
    """

    key: str
    concern: Concern
    writer: Writer
    want: Callable[[Layout], str]
    why: str
    source: str
    effect: str = "not measured"
    absent: str | None = None
    absent_if: Callable[[str], bool] = lambda wanted: True
    remedy: str = "run deploy.py again"
    takes: tuple[str, ...] = ()

    @property
    def opt_in(self) -> bool:
        """Whether it is only set when the configuration asks for it."""
        return self.writer is Writer.CMDLINE


@dataclass(frozen=True)
class Setting:
    """A row with its value for one host."""

    row: Row
    wanted: str

    @property
    def key(self) -> str:
        """The row's key."""
        return self.row.key


THP_ENABLED = "/sys/kernel/mm/transparent_hugepage/enabled"
THP_DEFRAG = "/sys/kernel/mm/transparent_hugepage/defrag"
NODE_HUGEPAGES = "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"
GOVERNOR = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
TURBO_OFF = "/sys/devices/system/cpu/intel_pstate/no_turbo"
EPP = "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference"
UNCORE_MIN = "/sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*/min_freq_khz"
UNCORE_MAX = "/sys/devices/system/cpu/intel_uncore_frequency/package_*_die_*/initial_max_freq_khz"

READ_TOO = (UNCORE_MAX, GIGANTIC_PAGES)
"""sysfs patterns that are no settings themselves but that a decision depends on."""

_THP: dict[HugepagePolicy, str] = {"thp": "always", "hugetlb": "madvise", "off": "never"}
_DEFRAG: dict[HugepagePolicy, str] = {"thp": "always", "hugetlb": "madvise", "off": "madvise"}


def _constant(value: str) -> Callable[[Layout], str]:
    return lambda _: value


MASKED, NOT_MASKED = "masked", "not masked"


def _never_sleep(target: str) -> Row:
    return Row(
        key=target,
        concern="power",
        writer=Writer.MASK,
        want=_constant(MASKED),
        why="A server must not sleep. A desktop installation (Ubuntu Desktop's default) suspends after some minutes "
        "without a keyboard, whatever is being served, and sleep loses the GPU's state.",
        source="systemd.special(7) and systemd-sleep.conf(5)",
    )


TABLE: tuple[Row, ...] = (
    Row(
        key="kernel.numa_balancing",
        concern="memory",
        writer=Writer.SYSCTL,
        want=_constant("0"),
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
        want=_constant("0"),
        why="With 1, a node that is nearly full of weights reclaims its own page cache, and stalls, before it "
        "uses the other node's free memory for everything that is not bound.",
        source="Linux Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode",
        absent="this kernel is built without NUMA",
    ),
    Row(
        key="vm.swappiness",
        concern="memory",
        writer=Writer.SYSCTL,
        want=_constant("1"),
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
        want=_constant("performance"),
        why="A token wakes each worker 43 times, for well under a millisecond of AVX-512 work: too short for a "
        "governor that first waits for load. (intel_pstate offers performance and powersave only.)",
        source="Linux Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst",
        absent="no cpufreq directory: the BIOS controls the clocks (set its power control to OS) or the CPU is virtual",
    ),
    Row(
        key=TURBO_OFF,
        concern="cpu",
        writer=Writer.SYSFS,
        want=_constant("0"),
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
        want=_constant("performance"),
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
    *map(_never_sleep, ("sleep.target", "suspend.target", "hibernate.target", "hybrid-sleep.target")),
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
        want=_constant("off"),
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
    return tuple(Setting(row, row.want(layout)) for row in TABLE if not row.opt_in or row.key in asked)


def not_asked_for(layout: Layout) -> tuple[Setting, ...]:
    """The opt-in rows that are not taken, with the value that ktfleet would have given them."""
    asked = layout.config.kernel_command_line
    return tuple(Setting(row, row.want(layout)) for row in TABLE if row.opt_in and row.key not in asked)
