"""What the probe has to read on a host: derived from the settings table, the templates and one configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ktfleet.config import Workstation
from ktfleet.plan import files, storage
from ktfleet.plan.account import ASKED, HOME
from ktfleet.plan.gpu import packages as gpu
from ktfleet.plan.places import (
    BEFORE,
    BOOT_UNIT_ENABLED,
    COMPACTED,
    IRQBALANCE_UNIT,
    LOCK,
    NVIDIA_UNINSTALL,
    PERSISTENCED_ENABLED,
    POWER_LIMIT_ENABLED,
    SERVER_UNIT,
    TIME_SERVICES,
    unit_file,
)
from ktfleet.plan.row import Writer
from ktfleet.plan.settings import BANNED_CPUS, GLIBC_TUNABLES, READ_TOO, TABLE

PACKAGES = gpu.DRIVER_PATTERNS
"""Patterns of package names whose versions are told."""

GPU_UNITS = (PERSISTENCED_ENABLED, POWER_LIMIT_ENABLED)


@dataclass(frozen=True)
class Request:
    """The arguments of `probe.collect`: names, patterns and paths on the host."""

    sysctl: tuple[str, ...]
    sysfs: tuple[str, ...]
    files: tuple[str, ...]
    links: tuple[str, ...]
    texts: tuple[str, ...]
    mounts: tuple[str, ...]
    units: tuple[str, ...]
    environment: tuple[str, ...]
    packages: tuple[str, ...]
    apt: tuple[str, ...]
    journald: tuple[str, ...]
    accounts: tuple[str, ...]
    folders: tuple[str, ...]
    before: str


def looked_at(config: Workstation | None) -> tuple[str, ...]:
    """Files that are no managed ones but that a decision about the card depends on. None: of any configuration."""
    if config is None:
        return (NVIDIA_UNINSTALL, *gpu.KEYRINGS)
    if config.gpu is None:
        return ()
    own = config.gpu.keyring_sha256
    return (NVIDIA_UNINSTALL, *gpu.KEYRINGS, *((gpu.keyring_path(own),) if own else ()))


def request(config: Workstation | None = None) -> Request:
    """Everything that a plan, its changes and its verdicts look at. None: of any configuration."""
    card = config is None or config.gpu is not None

    def keys(writer: Writer) -> tuple[str, ...]:
        return tuple(row.key for row in TABLE if row.writer is writer)

    return Request(
        sysctl=keys(Writer.SYSCTL),
        sysfs=(*keys(Writer.SYSFS), *READ_TOO),
        files=(*files.paths(), *looked_at(config)),
        links=(*map(unit_file, keys(Writer.MASK)), BOOT_UNIT_ENABLED, *TIME_SERVICES, *GPU_UNITS),
        texts=(LOCK, COMPACTED),
        mounts=storage.asked_paths(config),
        units=(SERVER_UNIT, IRQBALANCE_UNIT),
        environment=(GLIBC_TUNABLES, BANNED_CPUS),
        packages=(*PACKAGES, *(gpu.patterns() if card else ())),
        apt=keys(Writer.APT),
        journald=keys(Writer.JOURNALD),
        accounts=ASKED,
        folders=(HOME,),
        before=BEFORE,
    )
