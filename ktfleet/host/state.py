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

    `loader` is "grub" or "systemd-boot". `next_cmdline` are the arguments and `next_kernel` the release of the first
    Linux entry of the generated grub.cfg, what the next boot will get; None when the loader is not GRUB. `efi`: whether
    the firmware booted it by UEFI; `secure_boot`: whether Secure Boot is on. `dkms_key_enrolled`: whether the firmware
    trusts the key that DKMS signs with, only read under Secure Boot. `drop_ins` maps every file that can set the kernel
    command line (/etc/default/grub, /etc/default/grub.d/*.cfg, /etc/kernel/cmdline) to its sha256.
    """

    loader: str | None = None
    next_cmdline: str | None = None
    next_kernel: str | None = None
    efi: bool | None = None
    secure_boot: bool | None = None
    dkms_key_enrolled: bool | None = None
    drop_ins: dict[str, str] = Field(default_factory=dict)


class Swap(Frozen):
    """One swap area, from /proc/swaps. Bytes."""

    device: str
    size: Size
    used: Size


class IdleState(Frozen):
    """One C-state of CPU 0: its exit latency in microseconds."""

    name: str
    latency_us: int
    disabled: bool | None = None


class Dimm(Frozen):
    """One DIMM slot, from the edac labels or else the SMBIOS table.

    `label` is the firmware's own. `socket` counts from 0, `channel` is the channel's name within its socket ("0.1",
    "A"); each None when the label does not tell it. `size` in bytes, 0: an empty slot. Speeds in MT/s.
    """

    label: str
    socket: int | None = None
    channel: str | None = None
    size: Size | None = None
    rated_mts: int | None = None
    configured_mts: int | None = None


class Display(Frozen):
    """One PCI display device (class 0x03). Numbers in hex are lower case without 0x, as in sysfs.

    Speeds as sysfs words them ("8.0 GT/s PCIe"). `bar1_bytes` is its largest prefetchable memory region.
    `monitors` are its connectors with a monitor. `boot_vga`: the firmware shows its screen here.
    """

    address: str
    vendor: str | None = None
    device: str | None = None
    numa_node: int | None = None
    driver: str | None = None
    link_width: int | None = None
    link_speed: str | None = None
    max_link_width: int | None = None
    max_link_speed: str | None = None
    bar1_bytes: Size | None = None
    boot_vga: bool | None = None
    monitors: tuple[str, ...] = ()


class Nvidia(Frozen):
    """The NVIDIA kernel module's version as loaded and as on disk for the running kernel, with the latter's licence."""

    loaded: str | None = None
    on_disk: str | None = None
    license: str | None = None


class Disk(Frozen):
    """One block device that is no partition. Bytes."""

    name: str
    size: Size | None = None
    rotational: bool | None = None
    model: str | None = None


class Mount(Frozen):
    """The file system that holds an asked path (or would, when the path does not exist yet). Bytes.

    `free` is what an ordinary user may still write. `mount` is where it is mounted: "/" is the root file system.
    """

    mount: str
    device: str
    type: str
    read_only: bool
    size: Size | None = None
    free: Size | None = None


class Unit(Frozen):
    """One systemd service in system.slice. Limits are the cgroup's text, None: no such limit or not running.

    `active`: it has processes. `environment` holds the asked variables of its first process.
    """

    active: bool
    environment: dict[str, str] = Field(default_factory=dict)
    memory_max: str | None = None
    memory_high: str | None = None
    memory_swap_max: str | None = None
    cpus: str | None = None
    cpu_max: str | None = None


class User(Frozen):
    """One line of passwd(5)."""

    uid: int
    gid: int
    home: str
    shell: str

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid} at {self.home} with {self.shell}"


class Folder(Frozen):
    """Who owns a folder. `mode` is octal text with four digits."""

    uid: int
    gid: int
    mode: str

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid} {self.mode}"


class Listener(Frozen):
    """Who listens on an asked TCP port. `unit`: the systemd service that the process belongs to."""

    address: str
    port: int
    pid: int | None = None
    name: str | None = None
    unit: str | None = None


class Packages(Frozen):
    """dpkg and apt. `installed`: name -> version of the asked patterns. `locked_by`: who holds a lock of theirs, as
    "apt-get (pid 812)". `interrupted`: dpkg was stopped in the middle. `unfinished`: packages half installed."""

    installed: dict[str, str] = Field(default_factory=dict)
    locked_by: str | None = None
    interrupted: bool | None = None
    unfinished: tuple[str, ...] = ()


class HostState(Frozen):
    """One host as its probe saw it.

    `sysctl`, `files` and `links` hold what the caller asked for: sysctl name -> text, path -> sha256 (None: no
    such file), path -> what the symlink says (None: no such file, or not a symlink). `sysfs` maps each *path* that
    a requested pattern matched to its stripped text; a pattern without a match is listed in `unreadable`.
    `before` is the record of values from before our first change, as kept on the host (key -> place -> text).
    `cpu_flags_cpuid`: the flags that CPUID itself shows, where py-cpuinfo could ask it. `dimms`: None when no
    source lists them. `display_manager`: the unit that shows a desktop. `reboot_required`: the packages that ask for
    a reboot, or "unknown"; None: nobody asks. `cloud_init`: "absent", "running", "done" or "error".
    `cpu_dma_latency_us`: the present cap on the wake-up latency. `texts`: path -> stripped text of an asked small file
    (None: no such file). `mounts`: asked path -> its file system. `units`: asked unit -> what runs. `apt` and
    `journald`: asked option -> effective value ("a b" for a list; absent: not set); None: not read.
    `users` and `groups` (name -> gid): those with an asked name or number; None: not read. `folders`: asked path ->
    whose it is (None: no such folder). `listeners`: on the asked ports.
    """

    schema_version: int = Field(alias="schema")
    os: OS = OS()
    kernel: Kernel = Kernel()
    cpu_model: str | None = None
    cpu_flags: tuple[str, ...] | None = None
    cpu_flags_cpuid: tuple[str, ...] | None = None
    cpus: tuple[Cpu, ...] = ()
    nodes: tuple[Node, ...] = ()
    mem_total: Size | None = None
    mem_available: Size | None = None
    cpufreq_driver: str | None = None
    idle_driver: str | None = None
    idle_states: tuple[IdleState, ...] = ()
    cpu_dma_latency_us: int | None = None
    swaps: tuple[Swap, ...] | None = None
    dimms: tuple[Dimm, ...] | None = None
    displays: tuple[Display, ...] | None = None
    display_manager: str | None = None
    modules: tuple[str, ...] | None = None
    nvidia: Nvidia = Nvidia()
    disks: tuple[Disk, ...] = ()
    mounts: dict[str, Mount] = Field(default_factory=dict)
    units: dict[str, Unit] = Field(default_factory=dict)
    packages: Packages = Packages()
    apt: dict[str, str] | None = None
    journald: dict[str, str] | None = None
    users: dict[str, User] | None = None
    groups: dict[str, int] | None = None
    folders: dict[str, Folder | None] = Field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    cloud_init: str | None = None
    reboot_required: tuple[str, ...] | None = None
    clock_synchronised: bool | None = None
    glibc: str | None = None
    python: str | None = None
    boot: Boot = Boot()
    sysctl: dict[str, str] = Field(default_factory=dict)
    sysfs: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str | None] = Field(default_factory=dict)
    links: dict[str, str | None] = Field(default_factory=dict)
    texts: dict[str, str | None] = Field(default_factory=dict)
    before: dict[str, Any] = Field(default_factory=dict)
    unreadable: dict[str, str] = Field(default_factory=dict)
