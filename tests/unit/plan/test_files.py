"""The rendered files, and the one program among them, run for real."""

import subprocess
from pathlib import Path

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Hugepages, Workstation
from ktfleet.plan import files, places
from ktfleet.plan.files import File
from ktfleet.plan.settings import NODE_HUGEPAGES, OPT_INS, Writer
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def rendered(config: Workstation | None = None) -> dict[str, File]:
    made = plan.make(workstation(), config or Workstation(), RECIPE)
    return {path: files.render(made, path) for path in files.paths()}


def test_the_template_paths_are_the_destinations_that_the_changes_write() -> None:
    written = {places.COMMAND_LINE, places.SYSCTLS, places.BOOT_UNIT_PATH, places.WRITE_SYSFS}
    assert set(files.paths()) == written | set(places.SYSFS.values())


def test_only_the_program_is_executable() -> None:
    assert {file.path for file in rendered().values() if file.mode == "0755"} == {places.WRITE_SYSFS}


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
        if setting.row.writer is Writer.MASK:
            continue
        forms = ("{} = {}", "{1} {0}", "{}={}")
        assert sum(lines.count(form.format(setting.key, setting.wanted)) for form in forms) == 1


@pytest.fixture
def write_sysfs(tmp_path: Path) -> Path:
    program = tmp_path / "write-sysfs"
    program.write_text(rendered()[places.WRITE_SYSFS].content or "")
    return program


def run(program: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    conf = program.with_name("test.conf")
    conf.write_text("# a comment\n\n" + "".join(f"{line}\n" for line in lines))
    return subprocess.run(["sh", program, conf], capture_output=True, text=True)


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
