"""What the host gives to a running server: a stand-in takes the server's place, and is looked at from outside."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ktfleet.plan.settings import BANNED_CPUS, COMPACTION, GLIBC_TUNABLES, MEMORY_SWAP_MAX, WAKE_LATENCY
from tests.lab.deploying import NO_REBOOT, files, pyinfra
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab

SERVER_KEYS = {COMPACTION, GLIBC_TUNABLES, MEMORY_SWAP_MAX, WAKE_LATENCY}
STAND_IN = """cat > /usr/local/bin/stand-in <<'END'
import ctypes, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
weights = libc.malloc(ctypes.c_size_t(64 << 20))
ctypes.memset(weights, 1, 64 << 20)
open("/run/stand-in", "w").close()
time.sleep(9999)
END
mkdir -p /run/systemd/system
cat > /run/systemd/system/ktfleet-server.service <<'END'
[Service]
ExecStart=/usr/bin/python3 /usr/local/bin/stand-in
END
systemctl daemon-reload"""
WAIT_UNTIL_IT_HAS_ITS_MEMORY = "timeout 120 sh -c 'until [ -e /run/stand-in ]; do sleep 0.5; done'"
LATENCY = "od -An -td4 /dev/cpu_dma_latency"
NOBODY_HOLDS_IT = "2000000000"
STATUS = "cat /proc/$(systemctl show -p MainPID --value ktfleet-server)/status"


@pytest.fixture(scope="module", autouse=True)
def stand_in(machine: Machine) -> None:
    """Deployed, and with a unit in the server's place."""
    run = pyinfra(machine, "deploy.py", *NO_REBOOT)
    assert run.proven, run.said
    machine.run(STAND_IN, sudo=True)


@pytest.fixture
def serving(machine: Machine) -> Iterator[Machine]:
    machine.run(f"rm -f /run/stand-in; systemctl start ktfleet-server; {WAIT_UNTIL_IT_HAS_ITS_MEMORY}", sudo=True)
    yield machine
    machine.run("systemctl stop ktfleet-server", sudo=True)


def test_malloc_takes_the_pool_and_the_rows_pass(serving: Machine) -> None:
    status = dict(line.split(":", 1) for line in serving.run(STATUS, sudo=True).stdout.splitlines())
    assert int(status["HugetlbPages"].split()[0]) >= 64 << 10, "kB of a 64 MiB malloc"
    run = pyinfra(serving, "checks/drift.py", *NO_REBOOT)
    assert run.code == 0, run.said
    assert run.results("pass") >= SERVER_KEYS


def test_the_latency_is_capped_while_it_runs_and_not_longer(machine: Machine) -> None:
    assert machine.run(LATENCY, sudo=True).stdout.strip() == NOBODY_HOLDS_IT
    machine.run("systemctl start ktfleet-server && sleep 3", sudo=True)
    assert machine.run(LATENCY, sudo=True).stdout.strip() == "20"
    machine.run("systemctl kill -s KILL ktfleet-server; sleep 3", sudo=True)
    assert machine.run(LATENCY, sudo=True).stdout.strip() == NOBODY_HOLDS_IT, "a crash lifts it too"


def test_swap_is_kept_away_and_memory_was_compacted(serving: Machine) -> None:
    group = "/sys/fs/cgroup/system.slice/ktfleet-server.service"
    assert serving.run(f"cat {group}/memory.swap.max", sudo=True).stdout.strip() == "0"
    assert serving.run("cat /run/ktfleet/compacted").stdout.strip() == "before every start"


def test_a_server_that_was_started_otherwise_fails_its_row(serving: Machine) -> None:
    serving.run("systemctl set-property --runtime ktfleet-server MemorySwapMax=1G", sudo=True)
    run = pyinfra(serving, "checks/drift.py", *NO_REBOOT)
    serving.run("rm -rf /run/systemd/system.control; systemctl daemon-reload", sudo=True)
    assert run.code == 1
    assert run.results("fail", "inconclusive") == {MEMORY_SWAP_MAX}


def test_interrupts_stay_off_the_worker_cpus(machine: Machine) -> None:
    """qemu numbers siblings 0-1: the workers are on the even CPUs."""
    assert machine.run("cat /proc/irq/default_smp_affinity").stdout.strip() == "aa"
    process = machine.run("tr '\\0' '\\n' < /proc/$(pidof irqbalance)/environ", sudo=True).stdout
    assert f"{BANNED_CPUS}=0,2,4,6" in process


def test_updates_journal_and_clock_as_their_programs_see_them(machine: Machine) -> None:
    dumped = machine.run("apt-config dump").stdout
    assert 'DPkg::Lock::Timeout "600";' in dumped
    assert 'Unattended-Upgrade::Package-Blacklist:: "linux-image-";' in dumped
    journal = machine.run("systemd-analyze cat-config systemd/journald.conf").stdout
    assert [line for line in journal.splitlines() if line.startswith("SystemMaxUse=")] == ["SystemMaxUse=1G"]
    assert machine.run("systemctl is-enabled systemd-timesyncd").stdout.strip() == "enabled"


def test_a_file_that_was_replaced_is_kept(machine: Machine) -> None:
    record = json.loads(machine.run("cat /var/lib/ktfleet/before.json", sudo=True).stdout)
    assert record["files"]["/etc/sysctl.d/zz-ktfleet.conf"] is None
    machine.run("echo mine > /etc/systemd/journald.conf.d/zz-ktfleet.conf; rm -r /var/lib/ktfleet", sudo=True)
    assert pyinfra(machine, "deploy.py", *NO_REBOOT).proven
    kept = "/var/lib/ktfleet/before/etc/systemd/journald.conf.d/zz-ktfleet.conf"
    assert machine.run(f"cat {kept}", sudo=True).stdout == "mine\n"


def test_the_stand_in_changed_no_file_of_ours(machine: Machine) -> None:
    before = files(machine)
    run = pyinfra(machine, "deploy.py", *NO_REBOOT)
    assert (run.proven, run.changed, files(machine)) == (True, 0, before)
