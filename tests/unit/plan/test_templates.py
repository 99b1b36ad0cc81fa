"""The rendered files as the programs that read them understand them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Hugepages, Workstation
from ktfleet.plan import files, places
from ktfleet.plan.row import Writer
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def made(**config: Any) -> plan.Plan:
    return plan.make(workstation(), Workstation(**config), RECIPE)


def text(path: str, **config: Any) -> str | None:
    return files.render(made(**config), path).content


def lines(path: str, **config: Any) -> list[str]:
    return [line for line in (text(path, **config) or "").splitlines() if line and line[0] not in "#/"]


@pytest.mark.skipif(shutil.which("apt-config") is None, reason="no apt here")
def test_apt_reads_every_option(tmp_path: Path) -> None:
    file = tmp_path / "zz-ktfleet"
    file.write_text(text(places.APT) or "")
    environment = {**os.environ, "APT_CONFIG": str(file)}
    done = subprocess.run(["apt-config", "dump"], env=environment, capture_output=True, text=True, check=True)
    dumped = done.stdout.splitlines()
    for setting in made().of(Writer.APT):
        if " " not in setting.wanted:
            assert f'{setting.key} "{setting.wanted}";' in dumped
        for word in setting.wanted.split() if " " in setting.wanted else ():
            assert f'{setting.key}:: "{word}";' in dumped


def test_driver_and_kernel_are_held_back_together() -> None:
    """unattended-upgrades matches names from their beginning."""
    (held,) = [s.wanted.split() for s in made().of(Writer.APT) if "Blacklist" in s.key]
    both = ("nvidia-kernel-open-dkms", "libnvidia-compute-580-server", "linux-modules-nvidia-580-server-open-generic",
            "linux-image-6.1.0-28-amd64", "linux-image-amd64", "linux-headers-generic", "linux-generic-hwe-24.04",
            "linux-modules-extra-6.8.0-50-generic")  # fmt: skip
    assert all(any(package.startswith(beginning) for beginning in held) for package in both)
    others = ("linux-libc-dev", "openssh-server", "linux-base", "libc6", "base-files")
    assert not any(package.startswith(beginning) for package in others for beginning in held)


def test_irqbalance_gets_the_worker_cpus() -> None:
    assert lines(places.IRQBALANCE_ENVIRONMENT) == ["IRQBALANCE_BANNED_CPULIST=0-39"]
    fewer = lines(places.IRQBALANCE_ENVIRONMENT, cpuinfer=30)
    assert fewer == ["IRQBALANCE_BANNED_CPULIST=0-39"], "a tuner's try moves no interrupt"


def test_the_server_gets_the_tunable_with_a_pool_only() -> None:
    tunable = "Environment=GLIBC_TUNABLES=glibc.malloc.hugetlb=2"
    assert tunable in lines(places.SERVER_HOST, hugepages=Hugepages(policy="hugetlb"))
    assert not any("GLIBC" in line for line in lines(places.SERVER_HOST))


def test_without_a_latency_cap_nobody_holds_one() -> None:
    assert text(places.LATENCY_UNIT, wake_latency_us=None) is None
    assert lines(places.SERVER_HOST, wake_latency_us=None) == [
        "[Service]", "ExecStartPre=+/usr/local/lib/ktfleet/compact-memory", "MemorySwapMax=0",
    ]  # fmt: skip
    assert lines(places.SERVER_HOST)[:2] == ["[Unit]", "Wants=ktfleet-latency.service"]


def test_the_latency_is_written_as_the_kernel_takes_it(tmp_path: Path) -> None:
    """A hexadecimal number, in one write; systemd has halved the percent signs."""
    (start,) = [line for line in lines(places.LATENCY_UNIT, wake_latency_us=20) if line.startswith("ExecStart=")]
    command = start.partition("-c ")[2].strip("'").replace("%%", "%").replace("/dev/cpu_dma_latency", "$1")
    held = tmp_path / "latency"
    subprocess.run(["sh", "-c", command.replace("exec sleep infinity", "true"), "sh", held], check=True)
    assert held.read_text() == "0x00000014"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("policy", ["thp", "hugetlb"])
def test_systemd_understands_the_units(tmp_path: Path, policy: Any) -> None:
    units = tmp_path / "units"
    (units / "ktfleet-server.service.d").mkdir(parents=True)
    (units / "ktfleet-server.service").write_text("[Service]\nExecStart=/bin/true\n")
    config = {"hugepages": Hugepages(policy=policy)}
    for path in (places.SERVER_HOST, places.LATENCY_UNIT, places.BOOT_UNIT_PATH):
        (units / Path(path).relative_to("/etc/systemd/system")).write_text(text(path, **config) or "")
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"}
    names = [units / name for name in ("ktfleet-server.service", "ktfleet-latency.service", places.BOOT_UNIT)]
    done = subprocess.run(["systemd-analyze", "verify", *names], env=environment, capture_output=True, text=True)
    missing = ("Command /usr/local/lib/ktfleet/", "is not executable")
    said = [line for line in done.stderr.splitlines() if str(units) in line and not any(m in line for m in missing)]
    assert said == []


@pytest.mark.parametrize(("broken", "marked"), [(None, True), ("drop_caches", False), ("compact_memory", False)])
def test_a_compaction_is_only_marked_when_it_was_done(tmp_path: Path, broken: str | None, marked: bool) -> None:
    """A mark of an earlier start does not count either."""
    (tmp_path / "ktfleet").mkdir()
    mark = tmp_path / "ktfleet" / "compacted"
    mark.write_text("of an earlier start")
    program = (text(places.COMPACT_MEMORY) or "").replace("/run/ktfleet", str(mark.parent))
    program = program.replace("/proc/sys/vm/", f"{tmp_path}/").replace("sync\n", "")
    if broken:
        (tmp_path / broken).mkdir()
    # The server's unit keeps from others what it makes.
    done = subprocess.run(["sh", "-c", f"umask 077\n{program}"], capture_output=True)
    assert done.returncode == 0, "the server starts all the same"
    assert mark.exists() == marked
    if marked:
        assert mark.stat().st_mode & 0o777 == 0o644
        assert mark.read_text() == "before every start\n"
