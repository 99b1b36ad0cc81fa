"""The machine that the tests of this folder break is what it says: the wanted topology and a real Debian."""

from __future__ import annotations

import json

import pytest

from tests.lab.machine import Machine

pytestmark = pytest.mark.lab


def _all(machine: Machine, **commands: str) -> dict[str, str]:
    """What each command prints, in one ssh session: each login takes an emulated machine seconds."""
    said = machine.run("; printf '\\1'; ".join(commands.values())).stdout.split("\1")
    return dict(zip(commands, (text.strip() for text in said), strict=True))


def test_a_fresh_debian_with_two_sockets(machine: Machine) -> None:
    assert json.loads((machine.folder / "machine.json").read_text())["port"] == machine.port
    seen = _all(
        machine,
        nodes="cat /sys/devices/system/node/online /sys/devices/system/node/node0/distance",
        cpus="lscpu --parse=CPU,CORE,SOCKET,NODE | grep -v '#'",
        model="grep -m 1 'model name' /proc/cpuinfo",
        names="hostname; whoami; sudo whoami",
        python="python3 -c 'import json, glob, re, hashlib; print(json.dumps(1))'",
        thp="cat /sys/kernel/mm/transparent_hugepage/enabled",
        balancing="cat /proc/sys/kernel/numa_balancing",
        failed="systemctl --failed --no-legend",
        options="cat /proc/cmdline",
    )
    assert seen["nodes"].split() == ["0-1", "10", "21"]
    assert seen["cpus"].split() == [f"{cpu},{cpu // 2},{cpu // 4},{cpu // 4}" for cpu in range(8)]
    assert "Gold 6138" in seen["model"]
    assert seen["names"].split() == ["lab", "ops", "root"]
    assert seen["python"] == "1"
    assert "[always]" in seen["thp"]
    assert seen["balancing"] == "1"
    assert seen["failed"] == ""
    # The cloud drop-in, not /etc/default/grub, has the last word on the default options.
    assert seen["options"].split()[-3:] == ["nopti", "console=ttyS0,115200", "quiet"]
