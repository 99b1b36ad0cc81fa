"""The rendered files, and the one program among them, run for real."""

import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Hugepages, Workstation
from ktfleet.host.probe import collect
from ktfleet.host.state import HostState
from ktfleet.plan import files, places
from ktfleet.plan.files import File
from ktfleet.plan.request import request
from ktfleet.plan.row import Writer
from ktfleet.plan.settings import NODE_HUGEPAGES, OPT_INS
from tests.states import workstation
from tests.trees import write_tree

RECIPE = recipes.load("dsv4-flash-amxint4")


def rendered(config: Workstation | None = None) -> dict[str, File]:
    made = plan.make(workstation(), config or Workstation(), RECIPE)
    return {path: files.render(made, path) for path in files.paths()}


def test_the_template_paths_are_the_destinations_that_the_changes_write() -> None:
    written = {places.COMMAND_LINE, places.SYSCTLS, places.BOOT_UNIT_PATH, places.WRITE_SYSFS, places.APT}
    written |= {places.JOURNALD, places.IRQBALANCE, places.IRQBALANCE_ENVIRONMENT}
    written |= {places.NVIDIA_SOURCE, places.NVIDIA_PIN, places.NOUVEAU_BLACKLIST}
    written |= {places.PERSISTENCED, places.POWER_LIMIT}
    written |= {places.SERVER_HOST, places.LATENCY_UNIT, places.COMPACT_MEMORY}
    written |= {places.WEIGHTS_JOB, *map(places.unit_file, (places.DOWNLOAD_UNIT, places.CONVERT_UNIT))}
    written |= {places.STACK_JOB, places.unit_file(places.STACK_UNIT)}
    written |= {places.SERVER_JOB, places.unit_file(places.SERVER_UNIT)}
    written |= {places.FRONT_CONFIGURATION, places.unit_file(places.FRONT_UNIT)}
    assert set(files.paths()) == written | set(places.SYSFS.values())


def test_only_the_programs_are_executable() -> None:
    programs = {places.WRITE_SYSFS, places.COMPACT_MEMORY}
    assert {file.path for file in rendered().values() if file.mode == "0755"} == programs


def test_without_an_opt_in_there_is_no_drop_in() -> None:
    assert rendered()[places.COMMAND_LINE].content is None


def test_the_drop_in_appends_every_opt_in_on_one_line() -> None:
    content = rendered(Workstation(kernel_command_line=OPT_INS))[places.COMMAND_LINE].content or ""
    (line,) = [line for line in content.splitlines() if not line.startswith("#")]
    assert line == (
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT transparent_hugepage=always mitigations=off"'
    )


def test_another_pool_size_changes_one_line_of_one_file() -> None:
    one, two = (rendered(Workstation(hugepages=Hugepages(policy="hugetlb", per_node=n))) for n in (64, 128))
    (changed,) = [path for path in one if one[path] != two[path]]
    lines = zip((one[changed].content or "").splitlines(), (two[changed].content or "").splitlines(), strict=True)
    assert [pair for pair in lines if pair[0] != pair[1]] == [(f"64 {NODE_HUGEPAGES}", f"128 {NODE_HUGEPAGES}")]


def test_every_wanted_value_stands_in_exactly_one_file() -> None:
    made = plan.make(workstation(), Workstation(kernel_command_line=OPT_INS), RECIPE)
    lines = [line for path in files.paths() for line in (files.render(made, path).content or "").splitlines()]
    lines += [word for line in lines if line.startswith("GRUB_") for word in line.strip('"').split()]
    for setting in made.settings:
        if setting.row.writer in (Writer.MASK, Writer.ENABLED, Writer.SERVER) or " " in setting.wanted:
            continue
        forms = ("{} = {}", "{1} {0}", "{}={}", '{} "{}";')
        assert sum(lines.count(form.format(setting.key, setting.wanted)) for form in forms) == 1


@pytest.fixture
def write_sysfs(tmp_path: Path) -> Path:
    program = tmp_path / "write-sysfs"
    program.write_text(rendered()[places.WRITE_SYSFS].content or "")
    return program


def run(program: Path, *lines: str, **environment: str) -> subprocess.CompletedProcess[str]:
    conf = program.with_name("test.conf")
    conf.write_text("# a comment\n\n" + "".join(f"{line}\n" for line in lines))
    return subprocess.run(["sh", program, conf], capture_output=True, text=True, env={**os.environ, **environment})


def test_write_sysfs_writes_every_match(write_sysfs: Path) -> None:
    places = [write_sysfs.with_name(f"node{n}") for n in range(3)]
    for place in places:
        place.write_text("0\n")
    done = run(write_sysfs, f"64 {write_sysfs.parent}/node*", f"always {write_sysfs.parent}/not-there")
    assert (done.returncode, done.stderr) == (0, "")
    assert [place.read_text() for place in places] == ["64\n"] * 3
    assert not write_sysfs.with_name("not-there").exists()


@pytest.mark.parametrize(("text", "value", "holds"), [
    ("always [madvise] never", "madvise", True), ("always [madvise] never", "always", False),
    ("64", "64", True), ("640", "64", False), ("performance", "performance", True),
])  # fmt: skip
def test_write_sysfs_leaves_a_value_that_holds(write_sysfs: Path, text: str, value: str, holds: bool) -> None:
    place = write_sysfs.with_name("place")
    place.write_text(text + "\n")
    run(write_sysfs, f"{value} {place}")
    assert (place.read_text() == text + "\n") == (holds or text == value)


def test_write_sysfs_says_what_did_not_take(write_sysfs: Path) -> None:
    refusing = "/proc/sys/kernel/ostype"
    done = run(write_sysfs, f"Plan9 {refusing}", f"7 {write_sysfs.with_name('later')}")
    assert done.returncode == 1
    assert done.stderr == f"{refusing}: seen Linux, wanted Plan9; look for another program that writes it\n"


def test_write_sysfs_tries_a_pool_again(write_sysfs: Path) -> None:
    """The first write falls short; while it waits, the kernel finds more memory."""
    pool = write_sysfs.with_name("nr_hugepages")
    pool.symlink_to("/proc/sys/kernel/ostype")
    sleep = write_sysfs.with_name("sleep")
    sleep.write_text(f"#!/bin/sh\nrm -f {pool}; echo 63 >{pool}; echo tried >>{write_sysfs.with_name('tries')}\n")
    sleep.chmod(0o755)
    path = f"{write_sysfs.parent}:{os.environ['PATH']}"
    done = run(write_sysfs, f"64 {pool}", PATH=path)
    assert (done.returncode, done.stderr, pool.read_text()) == (0, "", "64\n")
    assert write_sysfs.with_name("tries").read_text() == "tried\n"


def test_write_sysfs_gives_up_on_a_pool_after_five_tries(write_sysfs: Path) -> None:
    pool = write_sysfs.with_name("nr_hugepages")
    pool.symlink_to("/proc/sys/kernel/ostype")
    sleep = write_sysfs.with_name("sleep")
    sleep.write_text(f"#!/bin/sh\necho tried >>{write_sysfs.with_name('tries')}\n")
    sleep.chmod(0o755)
    done = run(write_sysfs, f"64 {pool}", PATH=f"{write_sysfs.parent}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{pool}: seen Linux, wanted 64;")
    assert write_sysfs.with_name("tries").read_text() == "tried\n" * 4


@pytest.mark.parametrize(("online", "written"), [("1", True), ("0", False), (None, True)])
def test_write_sysfs_leaves_offline_cpus_alone(write_sysfs: Path, online: str | None, written: bool) -> None:
    folder = write_sysfs.parent / "cpu" / "cpu3" / "cpufreq"
    folder.mkdir(parents=True)
    if online is not None:
        (folder.parent / "online").write_text(f"{online}\n")
    (folder / "scaling_governor").write_text("powersave\n")
    assert run(write_sysfs, f"performance {write_sysfs.parent}/cpu/cpu*/cpufreq/scaling_governor").returncode == 0
    assert ((folder / "scaling_governor").read_text() == "performance\n") == written


def test_write_sysfs_misses_a_file_or_a_path(write_sysfs: Path) -> None:
    gone = subprocess.run(["sh", write_sysfs, "/no/such.conf"], capture_output=True, text=True)
    assert (gone.returncode, gone.stderr) == (
        1, "/no/such.conf: seen no readable file, wanted one; run deploy.py again\n",
    )  # fmt: skip
    done = run(write_sysfs, "64")
    assert done.returncode == 1
    assert "seen '64', wanted VALUE PATH" in done.stderr


@pytest.mark.parametrize("os_release", [("debian", "13"), ("ubuntu", "22.04"), ("ubuntu", "24.04")])
def test_other_distributions_get_the_same_files(tmp_path: Path, os_release: tuple[str, str]) -> None:
    tree = write_tree(tmp_path, os=os_release, thp="always [madvise] never")
    captured = HostState.model_validate(collect(str(tree), **asdict(request())))
    # What does differ: a driver's files (test_gpu_files), and the environment with the Python.
    wanted = Workstation(kernel_command_line=OPT_INS, gpu=None, stack=None)
    made = plan.make(captured, wanted, RECIPE)
    assert (made.refusals, made.unknown) == ((), ())
    expected = plan.make(workstation(), wanted, RECIPE)
    for path in files.paths():
        lines = (files.render(made, path).content or "").replace("initial_max_freq_khz", "2400000")
        assert lines == (files.render(expected, path).content or "")
