"""Where things lie on a host. The files themselves come from templates/, whose paths must agree (tested)."""

from __future__ import annotations

from ktfleet.plan.settings import Concern

BEFORE = "/var/lib/ktfleet/before.json"
"""On the host: each setting's value from before our first change (key -> place -> text)."""

COMMAND_LINE = "/etc/default/grub.d/zz-ktfleet.cfg"
SYSCTLS = "/etc/sysctl.d/zz-ktfleet.conf"
BOOT_UNIT = "ktfleet-sysfs.service"
BOOT_UNIT_PATH = f"/etc/systemd/system/{BOOT_UNIT}"
BOOT_UNIT_ENABLED = f"/etc/systemd/system/multi-user.target.wants/{BOOT_UNIT}"
WRITE_SYSFS = "/usr/local/lib/ktfleet/write-sysfs"
SYSFS: dict[Concern, str] = {
    "memory": "/etc/ktfleet/sysfs.d/memory.conf",
    "cpu": "/etc/ktfleet/sysfs.d/cpu.conf",
}


def unit_file(unit: str) -> str:
    """Where an administrator's version of a systemd unit lies; masked, it is a symlink to /dev/null."""
    return f"/etc/systemd/system/{unit}"
