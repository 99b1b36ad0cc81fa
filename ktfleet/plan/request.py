"""What the probe has to read on a host: derived from the settings table and the templates."""

from __future__ import annotations

from dataclasses import dataclass

from ktfleet.plan import files
from ktfleet.plan.places import BEFORE, BOOT_UNIT_ENABLED, unit_file
from ktfleet.plan.settings import READ_TOO, TABLE, Writer

PACKAGES = (
    "nvidia-*",
    "libnvidia-*",
    "linux-modules-nvidia-*",
    "cuda-*",
    "irqbalance",
    "systemd-timesyncd",
    "chrony",
    "ntpsec",
    "unattended-upgrades",
)
"""The driver, and what moves interrupts, sets the clock or upgrades by itself."""


@dataclass(frozen=True)
class Request:
    """The arguments of `probe.collect`: names, patterns and paths on the host."""

    sysctl: tuple[str, ...]
    sysfs: tuple[str, ...]
    files: tuple[str, ...]
    links: tuple[str, ...]
    before: str
    mounts: tuple[str, ...]
    units: tuple[str, ...]
    environment: tuple[str, ...]
    packages: tuple[str, ...]
    apt: tuple[str, ...]
    journald: tuple[str, ...]
    texts: tuple[str, ...]


def request() -> Request:
    """Everything that a plan, its changes and its verdicts look at."""

    def keys(writer: Writer) -> tuple[str, ...]:
        return tuple(row.key for row in TABLE if row.writer is writer)

    return Request(
        sysctl=keys(Writer.SYSCTL),
        sysfs=(*keys(Writer.SYSFS), *READ_TOO),
        files=files.paths(),
        links=(*map(unit_file, keys(Writer.MASK)), BOOT_UNIT_ENABLED),
        before=BEFORE,
        mounts=("/", "/boot", "/etc", "/var", "/usr/local"),
        units=("ktfleet-server.service", "irqbalance.service"),
        environment=("GLIBC_TUNABLES", "IRQBALANCE_BANNED_CPULIST"),
        packages=PACKAGES,
        apt=(
            "DPkg::Lock::Timeout",
            "Unattended-Upgrade::Package-Blacklist",
            "Unattended-Upgrade::Automatic-Reboot",
        ),
        journald=("SystemMaxUse",),
        texts=("/run/ktfleet/lock",),
    )
