"""Where things lie on a host. The files themselves come from templates/, whose paths must agree (tested)."""

from __future__ import annotations

from ktfleet.plan.row import Concern

BEFORE = "/var/lib/ktfleet/before.json"
"""On the host: each setting's value from before our first change (key -> place -> text)."""

BEFORE_FILES = "/var/lib/ktfleet/before"
"""On the host: copies of files that ktfleet replaced, each below here at its own path."""

LOCK = "/run/ktfleet/lock"
"""On the host: which run changes it now."""

COMPACTED = "/run/ktfleet/compacted"
"""On the host: left by the compaction before the server's latest start."""

MODELS = "/srv/models"
"""Where weights lie when no data disk is configured."""

SERVER_UNIT = "ktfleet-server.service"
SERVER_HOST = f"/etc/systemd/system/{SERVER_UNIT}.d/host.conf"
"""What the host adds to the server's unit."""

SERVER_ENABLED = f"/etc/systemd/system/multi-user.target.wants/{SERVER_UNIT}"
SERVER_PROGRAM = "/usr/local/lib/ktfleet/server"
"""On the host: what the unit runs; it starts the server and looks after it."""

SERVER_JOB = "/etc/ktfleet/server.json"
"""The server's command line and environment."""

SERVER_STARTED = "/run/ktfleet-server/started.json"
"""What the running server was started from."""

SERVER_PROGRESS = "/run/ktfleet-server/progress.json"
FRONT_UNIT = "ktfleet-front.service"
"""The proxy that asks clients for the key."""

FRONT_ENABLED = f"/etc/systemd/system/multi-user.target.wants/{FRONT_UNIT}"
FRONT_CONFIGURATION = "/etc/ktfleet/front.cfg"
SERVER_KEY = "/etc/ktfleet/server.key"
"""root's alone; systemd hands it to the front."""

LATENCY_UNIT = "/etc/systemd/system/ktfleet-latency.service"
COMPACT_MEMORY = "/usr/local/lib/ktfleet/compact-memory"
IRQBALANCE_UNIT = "irqbalance.service"
IRQBALANCE_ENVIRONMENT = "/etc/ktfleet/irqbalance"
IRQBALANCE = f"/etc/systemd/system/{IRQBALANCE_UNIT}.d/zz-ktfleet.conf"
APT = "/etc/apt/apt.conf.d/zz-ktfleet"
JOURNALD = "/etc/systemd/journald.conf.d/zz-ktfleet.conf"
COMMAND_LINE = "/etc/default/grub.d/zz-ktfleet.cfg"
SYSCTLS = "/etc/sysctl.d/zz-ktfleet.conf"
BOOT_UNIT = "ktfleet-sysfs.service"
BOOT_UNIT_PATH = f"/etc/systemd/system/{BOOT_UNIT}"
BOOT_UNIT_ENABLED = f"/etc/systemd/system/multi-user.target.wants/{BOOT_UNIT}"
WRITE_SYSFS = "/usr/local/lib/ktfleet/write-sysfs"
MEASURE = "/usr/local/lib/ktfleet/measure"
"""On the host: the programs that measure it, and pynvml."""
MEASUREMENTS = f"{MEASURE}/measure.pyz"
"""On the host: the measurements that need nothing but python3, in one file."""

DPKG_STATUS = "/var/lib/dpkg/status"
PCI_DEVICES = "/sys/bus/pci/devices"

NVIDIA_SOURCE = "/etc/apt/sources.list.d/ktfleet-nvidia.sources"
NVIDIA_PIN = "/etc/apt/preferences.d/ktfleet-nvidia"
NOUVEAU_BLACKLIST = "/etc/modprobe.d/ktfleet-nouveau.conf"
PERSISTENCED_UNIT = "nvidia-persistenced.service"
PERSISTENCED = f"/etc/systemd/system/{PERSISTENCED_UNIT}.d/zz-ktfleet.conf"
PERSISTENCED_ENABLED = f"/etc/systemd/system/multi-user.target.wants/{PERSISTENCED_UNIT}"
POWER_LIMIT_UNIT = "ktfleet-gpu-power.service"
POWER_LIMIT = f"/etc/systemd/system/{POWER_LIMIT_UNIT}"
POWER_LIMIT_ENABLED = f"/etc/systemd/system/multi-user.target.wants/{POWER_LIMIT_UNIT}"
NVIDIA_UNINSTALL = "/usr/bin/nvidia-uninstall"
"""NVIDIA's runfile leaves it; no package has it."""

WEIGHTS = "/usr/local/lib/ktfleet/weights"
"""On the host: the program that gets, converts and verifies weights."""

WEIGHTS_JOB = "/etc/ktfleet/weights.json"
DOWNLOAD_UNIT = "ktfleet-download.service"
CONVERT_UNIT = "ktfleet-convert.service"
FSTAB = "/etc/fstab"
STACKS = "/opt/ktfleet/stacks"
"""On the host: environments of the server, the one in use and the one before it."""

STACK = "/opt/ktfleet/stack"
"""A symlink to the one in use."""

STACK_CACHE = "/opt/ktfleet/cache"
"""What uv has fetched, while it is not installed. On the same file system: its files become the environment's."""

STACK_PYTHONS = "/opt/ktfleet/pythons"
STACK_PROGRAM = "/usr/local/lib/ktfleet/stack/install"
"""On the host: the program that installs it; uv and the lock are beside it."""

STACK_UV = "/usr/local/lib/ktfleet/stack/uv"
STACK_LOCK = "/usr/local/lib/ktfleet/stack/lock.txt"
STACK_JOB = "/etc/ktfleet/stack.json"
STACK_UNIT = "ktfleet-stack.service"
SYSTEM_PYTHON = "/usr/bin/python3"
STACK_PYTHON = f"{STACK}/bin/python"
"""The interpreter of the server's environment."""

OVERLAYS = "/opt/ktfleet/own"
"""On the host: what the server loads of ktfleet, a folder a version."""

SERVER_STATUS = "/run/ktfleet-server/overlay.json"
"""Written by the running server: what the overlay does. The unit has to make its folder (RuntimeDirectory=)."""

SYSFS: dict[Concern, str] = {
    "memory": "/etc/ktfleet/sysfs.d/memory.conf",
    "cpu": "/etc/ktfleet/sysfs.d/cpu.conf",
}


TIME_SERVICES = (
    "/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service",
    *(f"/etc/systemd/system/multi-user.target.wants/{name}.service" for name in ("chrony", "ntpsec", "openntpd")),
)
"""A time service is enabled when one of these links is there."""


def unit_file(unit: str) -> str:
    """Where an administrator's version of a systemd unit lies; masked, it is a symlink to /dev/null."""
    return f"/etc/systemd/system/{unit}"
