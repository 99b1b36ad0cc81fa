"""What a host is: the typed, frozen form of the JSON that `probe.py` prints.

A field that could not be read is None, and `unreadable` says why, keyed by the path that was tried
or by the field's name. Sizes are bytes. CPU numbers are Linux logical CPUs (PUs).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
"""Version of the probe's JSON. A state with another version is not read: its meaning may differ."""


Size = Annotated[int, Field(ge=0, le=2**63)]


class Frozen(BaseModel):
    """Immutable; keys of a newer probe that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class OS(Frozen):
    """From os-release: `id` is "debian", "ubuntu"...; `version_id` "12", "24.04"..."""

    id: str | None = None
    version_id: str | None = None
    pretty_name: str | None = None


class Kernel(Frozen):
    """The running kernel. `boot_id` changes at every boot; `cmdline` is /proc/cmdline."""

    release: str | None = None
    boot_id: str | None = None
    cmdline: str | None = None


class Cpu(Frozen):
    """One online logical CPU. `siblings` are all the PUs of its physical core, itself included."""

    cpu: int
    core: int | None = None
    socket: int | None = None
    node: int | None = None
    siblings: tuple[int, ...] | None = None


class Node(Frozen):
    """One NUMA node. Sizes in bytes; `hugepages_*` count 2 MiB pages; `distances` is the SLIT row."""

    node: int
    cpus: tuple[int, ...] = ()
    mem_total: Size | None = None
    mem_free: Size | None = None
    distances: tuple[int, ...] | None = None
    hugepages_total: int | None = None
    hugepages_free: int | None = None


class Boot(Frozen):
    """How the machine boots.

    `loader` is "grub" or "systemd-boot". `next_cmdline` are the arguments of the first Linux entry of the
    generated grub.cfg, what the next boot will get; None when the loader is not GRUB. `drop_ins` maps every file
    that can set the kernel command line (/etc/default/grub, /etc/default/grub.d/*.cfg, /etc/kernel/cmdline) to
    its sha256.
    """

    loader: str | None = None
    next_cmdline: str | None = None
    drop_ins: dict[str, str] = Field(default_factory=dict)


class HostState(Frozen):
    """One host as its probe saw it.

    `sysctl`, `files` and `links` hold what the caller asked for: sysctl name -> text, path -> sha256 (None: no
    such file), path -> what the symlink says (None: no such file, or not a symlink). `sysfs` maps each *path* that
    a requested pattern matched to its stripped text; a pattern without a match is listed in `unreadable`.
    `before` is the record of values from before our first change, as kept on the host (key -> place -> text).
    """

    schema_version: int = Field(alias="schema")
    os: OS = OS()
    kernel: Kernel = Kernel()
    cpu_model: str | None = None
    cpu_flags: tuple[str, ...] | None = None
    cpus: tuple[Cpu, ...] = ()
    nodes: tuple[Node, ...] = ()
    mem_total: Size | None = None
    mem_available: Size | None = None
    cpufreq_driver: str | None = None
    glibc: str | None = None
    python: str | None = None
    boot: Boot = Boot()
    sysctl: dict[str, str] = Field(default_factory=dict)
    sysfs: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str | None] = Field(default_factory=dict)
    links: dict[str, str | None] = Field(default_factory=dict)
    before: dict[str, Any] = Field(default_factory=dict)
    unreadable: dict[str, str] = Field(default_factory=dict)
