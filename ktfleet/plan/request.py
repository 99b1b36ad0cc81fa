"""What the probe has to read on a host: derived from the settings table, the templates and one configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ktfleet import recipes
from ktfleet.config import Workstation
from ktfleet.plan import files, launch, stack, storage, weights
from ktfleet.plan.account import ASKED, HOME
from ktfleet.plan.gpu import packages as gpu
from ktfleet.plan.overlay import wanted as overlay
from ktfleet.plan.places import (
    BEFORE,
    BOOT_UNIT_ENABLED,
    COMPACTED,
    CONVERT_UNIT,
    DOWNLOAD_UNIT,
    FRONT_ENABLED,
    FRONT_UNIT,
    FSTAB,
    IRQBALANCE_UNIT,
    LOCK,
    NVIDIA_UNINSTALL,
    PERSISTENCED_ENABLED,
    POWER_LIMIT_ENABLED,
    SERVER_ENABLED,
    SERVER_PROGRAM,
    SERVER_PROGRESS,
    SERVER_STARTED,
    SERVER_UNIT,
    STACK,
    STACK_CACHE,
    STACK_PROGRAM,
    STACK_UNIT,
    SYSTEM_PYTHON,
    TIME_SERVICES,
    WEIGHTS,
    unit_file,
)
from ktfleet.plan.row import Writer
from ktfleet.plan.server.wanted import FRONT_PACKAGE
from ktfleet.plan.settings import BANNED_CPUS, GLIBC_TUNABLES, READ_TOO, TABLE
from ktfleet.stack.job import COMPLETE

PACKAGES = gpu.DRIVER_PATTERNS
"""Patterns of package names whose versions are told."""

MEASURING = ("bubblewrap", "gcc", "libc6-dev")
"""A sandbox for the canary's code, a compiler for the bandwidth's kernel."""

TOOLS = ("git", "rsync", FRONT_PACKAGE, *MEASURING)
"""What getting and converting weights may need, the server's front, and measurements."""

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
    ports: tuple[str, ...]
    before: str


def looked_at(config: Workstation | None) -> tuple[str, ...]:
    """Files that are no managed ones but that a decision depends on. None: of any configuration."""
    if config is None:
        return (NVIDIA_UNINSTALL, *gpu.KEYRINGS)
    own = config.gpu.keyring_sha256 if config.gpu else None
    card = (NVIDIA_UNINSTALL, *gpu.KEYRINGS, *((gpu.keyring_path(own),) if own else ())) if config.gpu else ()
    return (*card, *_weights(config), *((STACK_PROGRAM, SERVER_PROGRAM, *overlay.paths()) if config.stack else ()))


def _weights(config: Workstation) -> tuple[str, ...]:
    """The program that gets them, and what says that they are complete."""
    wanted = weights.job(config, _recipe(config)) if config.weights else None
    return (WEIGHTS, *weights.proofs(wanted)) if wanted else ()


def _recipe(config: Workstation) -> recipes.Recipe:
    return recipes.load(config.recipe, config.override)


def _weights_by_hand(config: Workstation | None) -> tuple[str, ...]:
    """Where they lie when ktfleet does not get them. Pools are one a socket."""
    if config is None or config.stack is None or config.weights is not None:
        return ()
    return launch.folders(config, _recipe(config), config.hardware.sockets)


def _server(config: Workstation | None) -> tuple[str, ...]:
    return (SERVER_STARTED, SERVER_PROGRESS) if config and config.stack else ()


def _ports(config: Workstation | None) -> tuple[str, ...]:
    server = config.server if config and config.stack else None
    return tuple(map(str, dict.fromkeys((server.port, server.own_port)))) if server else ()


def _fstab(config: Workstation | None) -> tuple[str, ...]:
    return (FSTAB,) if config and config.data and config.data.mounted_by_us else ()


def _data_disk(config: Workstation | None) -> tuple[str, ...]:
    return (config.data.device,) if config and config.data and config.data.mounted_by_us else ()


def _stack_links(config: Workstation | None) -> tuple[str, ...]:
    return (STACK, SYSTEM_PYTHON) if config and config.stack else ()


def _stack_cache(config: Workstation | None) -> tuple[str, ...]:
    return (STACK_CACHE,) if config and config.stack else ()


def _stack_proofs(config: Workstation | None) -> tuple[str, ...]:
    """What the last file of an environment says."""
    return tuple(f"{folder}/{COMPLETE}" for folder in stack.folders(config)) if config else ()


def request(config: Workstation | None = None) -> Request:
    """Everything that a plan, its changes and its verdicts look at. None: of any configuration."""
    card = config is None or config.gpu is not None

    def keys(writer: Writer) -> tuple[str, ...]:
        return tuple(row.key for row in TABLE if row.writer is writer)

    return Request(
        sysctl=keys(Writer.SYSCTL),
        sysfs=(*keys(Writer.SYSFS), *READ_TOO),
        files=(*files.paths(), *looked_at(config), *_fstab(config)),
        links=(
            *map(unit_file, keys(Writer.MASK)),
            BOOT_UNIT_ENABLED,
            *TIME_SERVICES,
            *GPU_UNITS,
            SERVER_ENABLED,
            FRONT_ENABLED,
            *_data_disk(config),
            *_stack_links(config),
        ),
        texts=(LOCK, COMPACTED, *_fstab(config), *_stack_proofs(config), *_server(config)),
        mounts=storage.asked_paths(config),
        units=(SERVER_UNIT, FRONT_UNIT, IRQBALANCE_UNIT, DOWNLOAD_UNIT, CONVERT_UNIT, STACK_UNIT),
        environment=(GLIBC_TUNABLES, BANNED_CPUS),
        packages=(*PACKAGES, *TOOLS, *(gpu.patterns() if card else ())),
        apt=keys(Writer.APT),
        journald=keys(Writer.JOURNALD),
        accounts=ASKED,
        folders=(
            HOME,
            *((config.data.mount,) if config and config.data else ()),
            *_stack_cache(config),
            *_weights_by_hand(config),
        ),
        ports=_ports(config),
        before=BEFORE,
    )
