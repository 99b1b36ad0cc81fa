"""The main job on a real operating system, looked at from outside: ssh and cat, not ktfleet."""

from __future__ import annotations

import json

import pytest

from ktfleet.plan.settings import NODE_HUGEPAGES
from tests.lab.deploying import SKIPPED, Run, files, pyinfra
from tests.lab.machine import Machine

pytestmark = pytest.mark.lab

COUNT_BOOTS = """cat > /etc/systemd/system/count-boots.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo boot >>/var/boots'
[Install]
WantedBy=sysinit.target
END
systemctl -q enable count-boots.service"""
"""Counts the boots without ktfleet's help."""

CLOUD_DROP_IN = "/etc/default/grub.d/50-cloudimg-settings.cfg"
POOLS = "cat /sys/devices/system/node/node[01]/hugepages/hugepages-2048kB/nr_hugepages"


@pytest.fixture(scope="module")
def fresh(machine: Machine) -> dict[str, str]:
    """What the machine was before anything was done to it."""
    facts = {
        "boot_id": machine.boot_id(),
        "cloud": machine.run(f"cat {CLOUD_DROP_IN}").stdout,
        "cmdline": machine.run("cat /proc/cmdline").stdout,
        "swappiness": machine.run("cat /proc/sys/vm/swappiness").stdout.strip(),
    }
    assert "transparent_hugepage" not in facts["cmdline"]
    machine.run(COUNT_BOOTS, sudo=True)
    return facts


@pytest.fixture(scope="module")
def first(machine: Machine, fresh: dict[str, str]) -> Run:
    run = pyinfra(machine, "deploy.py")
    assert run.done.returncode == 0, run.said
    return run


def test_a_fresh_machine_is_tuned_rebooted_once_and_proven(machine: Machine, fresh: dict[str, str], first: Run) -> None:
    assert first.results("pass", "skipped") == set(first.verdicts), first.said
    assert first.skipped == SKIPPED
    assert machine.boot_id() != fresh["boot_id"]
    assert first.done.stderr.count("rebooting: transparent_hugepage: running nothing, next boot madvise") == 1
    assert machine.run("cat /var/boots").stdout.split() == ["boot"], "one boot since the counter was placed"


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(("path", "value"), [
    ("/proc/sys/kernel/numa_balancing", "0"),
    ("/proc/sys/vm/zone_reclaim_mode", "0"),
    ("/proc/sys/vm/swappiness", "1"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never"),
    ("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "64"),
    ("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "64"),
])  # fmt: skip
def test_each_value_by_plain_cat(machine: Machine, path: str, value: str) -> None:
    assert machine.run(f"cat {path}").stdout.strip() == value


@pytest.mark.usefixtures("first")
def test_our_parameter_survives_the_cloud_drop_in_which_is_untouched(machine: Machine, fresh: dict[str, str]) -> None:
    running = machine.run("cat /proc/cmdline").stdout.split()
    assert running[-1] == "transparent_hugepage=madvise"
    assert "console=ttyS0,115200" in running, "what the cloud image set is still there"
    assert machine.run(f"cat {CLOUD_DROP_IN}").stdout == fresh["cloud"]


@pytest.mark.usefixtures("first")
def test_the_values_of_before_are_kept_on_the_host(machine: Machine, fresh: dict[str, str]) -> None:
    record = json.loads(machine.run("cat /var/lib/ktfleet/before.json", sudo=True).stdout)
    assert record["vm.swappiness"] == {"vm.swappiness": fresh["swappiness"]}
    assert record["transparent_hugepage"] == {}
    assert record["/sys/kernel/mm/transparent_hugepage/enabled"].popitem()[1] == "always"
    assert record[NODE_HUGEPAGES] == {NODE_HUGEPAGES.replace("node*", f"node{node}"): "0" for node in (0, 1)}
    assert machine.run("stat -c %a /var/lib/ktfleet/before.json", sudo=True).stdout.strip() == "600"


@pytest.mark.usefixtures("first")
def test_the_second_run_does_nothing_at_all(machine: Machine) -> None:
    boot_id, before = machine.boot_id(), files(machine)
    run = pyinfra(machine, "deploy.py")
    assert (run.done.returncode, run.changed) == (0, 0), run.said
    assert run.skipped == SKIPPED
    assert machine.boot_id() == boot_id
    assert files(machine) == before


@pytest.mark.usefixtures("first")
def test_another_pool_size_is_one_line_of_one_file(machine: Machine) -> None:
    before, boot_id = files(machine), machine.boot_id()
    lines = machine.run("cat /etc/ktfleet/sysfs.d/memory.conf").stdout.splitlines()
    run = pyinfra(machine, "deploy.py", "--data", 'hugepages={"policy": "hugetlb", "per_node": 128}')
    assert run.done.returncode == 0, run.said
    assert machine.run(POOLS).stdout.split() == ["128", "128"]
    after = files(machine)
    assert {path for path in after if after[path] != before.get(path)} == {"/etc/ktfleet/sysfs.d/memory.conf"}
    now = machine.run("cat /etc/ktfleet/sysfs.d/memory.conf").stdout.splitlines()
    assert [pair for pair in zip(lines, now, strict=True) if pair[0] != pair[1]] == [
        (f"64 {NODE_HUGEPAGES}", f"128 {NODE_HUGEPAGES}")
    ]
    assert machine.boot_id() == boot_id, "no reboot for a running value"
    assert pyinfra(machine, "deploy.py").done.returncode == 0
    assert machine.run(POOLS).stdout.split() == ["64", "64"]


BY_HAND = (
    ("sysctl -q -w vm.swappiness=60", "vm.swappiness", "60", "1"),
    ("echo always > /sys/kernel/mm/transparent_hugepage/enabled",
     "/sys/kernel/mm/transparent_hugepage/enabled", "always", "madvise"),
    ("echo 3 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", NODE_HUGEPAGES,
     "3 at /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages (of 2)", "64"),
    ("systemctl -q unmask suspend.target", "suspend.target", "not masked", "masked"),
    ("echo '# mine' >> /etc/sysctl.d/zz-ktfleet.conf", "/etc/sysctl.d/zz-ktfleet.conf", "other content", "our content"),
)  # fmt: skip
"""What a person changes, and the row, seen and wanted, of the verdict that has to follow."""


@pytest.mark.usefixtures("first")
def test_values_changed_by_hand_fail_exactly_their_rows(machine: Machine) -> None:
    machine.run("; ".join(command for command, *_ in BY_HAND), sudo=True)
    run = pyinfra(machine, "checks/drift.py")
    assert run.done.returncode == 1
    assert run.results("fail", "inconclusive") == {key for _, key, *_ in BY_HAND}
    for _, key, seen, wanted in BY_HAND:
        assert f"{key}: seen {seen}, wanted {wanted}; run deploy.py again. Why: {run.verdicts[key]['why']}" in run.said
    repaired = pyinfra(machine, "deploy.py")
    assert (repaired.done.returncode, repaired.results("fail")) == (0, set()), repaired.said


@pytest.mark.usefixtures("first")
def test_the_check_alone_passes_and_changes_nothing(machine: Machine) -> None:
    before = files(machine)
    run = pyinfra(machine, "checks/drift.py")
    assert (run.done.returncode, run.changed, files(machine)) == (0, 0, before)


@pytest.mark.usefixtures("first")
def test_a_refusal_touches_nothing(machine: Machine) -> None:
    before = files(machine)
    run = pyinfra(machine, "deploy.py", "--data", "cpuinfer=8")
    assert run.done.returncode == 1
    assert "lab  refused: cpuinfer is too high: seen 8, wanted at most 4 (2+2 physical cores" in run.said
    assert files(machine) == before


@pytest.mark.long
@pytest.mark.usefixtures("first")
def test_settings_survive_a_reboot_that_nobody_planned(machine: Machine) -> None:
    machine.reboot()
    run = pyinfra(machine, "checks/drift.py")
    assert run.done.returncode == 0, run.said
    assert run.skipped == SKIPPED


@pytest.mark.usefixtures("first")
def test_an_opt_in_taken_back_leaves_the_command_line_as_it_was(machine: Machine, fresh: dict[str, str]) -> None:
    """Last: it reboots."""
    run = pyinfra(machine, "deploy.py", "--data", "kernel_command_line=[]")
    assert run.done.returncode == 0, run.said
    assert machine.run("cat /proc/cmdline").stdout == fresh["cmdline"]
    assert "zz-ktfleet.cfg" not in machine.run("ls /etc/default/grub.d").stdout
