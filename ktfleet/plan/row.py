"""One row of the table of settings, and what its values may depend on."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ktfleet.config import Workstation
from ktfleet.plan.memory import Memory

Concern = Literal["kernel", "memory", "cpu", "power", "system", "service"]


class Writer(Enum):
    """How a value is written and read back; the value is the name that people see."""

    SYSCTL = "sysctl"
    SYSFS = "kernel file (/sys, /proc)"
    MASK = "systemd mask"
    SERVER = "server unit"
    IRQBALANCE = "irqbalance"
    APT = "apt configuration"
    JOURNALD = "journald configuration"
    ENABLED = "systemd service"
    CMDLINE = "kernel command line"


@dataclass(frozen=True)
class Layout:
    """What a wanted value may depend on.

    uncore_max_khz: the highest clock that the uncore allows, if it tells. worker_cpus: as a kernel list ("0-39").
    other_mask: the other CPUs, as the kernel writes a CPU mask.
    """

    config: Workstation
    memory: Memory
    uncore_max_khz: str | None = None
    worker_cpus: str = ""
    other_mask: str = ""


@dataclass(frozen=True)
class Row:
    """One setting.

    key: the sysctl's name, the full path (`*` where the kernel repeats a file for each CPU or node), the systemd
    unit's, the option's or the kernel parameter's name. want: the wanted value; None: this layout asks for none.
    shown: the wanted value in words, where it depends on the host. holds: whether a seen value satisfies the wanted
    one. absent: why the setting may be missing on a host (its verdict is then "skipped"); None: it may not.
    absent_if: for which wanted values it may. effect: what was measured, on what. remedy: what helps when the value
    is not as wanted. A kernel command line row is opt-in; takes: every value that it may be given.
    """

    key: str
    concern: Concern
    writer: Writer
    want: Callable[[Layout], str | None]
    why: str
    source: str
    effect: str = "not measured"
    shown: str | None = None
    holds: Callable[[str, str], bool] = operator.eq
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

    def holds(self, seen: str) -> bool:
        """Whether a seen value is as wanted."""
        return self.row.holds(seen, self.wanted)


def constant(value: str) -> Callable[[Layout], str]:
    """A wanted value that depends on nothing."""
    return lambda _: value


def every_word(seen: str, wanted: str) -> bool:
    """Whether a list holds every wanted word; the owner's own words may stand beside them."""
    return set(wanted.split()) <= set(seen.split())


def at_most(seen: str, wanted: str) -> bool:
    """Whether a seen number is not above the wanted one."""
    return seen.isdecimal() and int(seen) <= int(wanted)
