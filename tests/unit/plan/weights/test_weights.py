"""The data disk and what is to be put on it: refusals, commands, and the commands run by a real shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import plan, recipes, verdict
from ktfleet.config import Data, Workstation
from ktfleet.host.state import Folder, HostState, Unit
from ktfleet.plan import Plan, told
from ktfleet.plan.changes import remember
from ktfleet.plan.files import render
from ktfleet.plan.places import CONVERT_UNIT, DOWNLOAD_UNIT, FSTAB, WEIGHTS, WEIGHTS_JOB, unit_file
from ktfleet.plan.request import request
from ktfleet.plan.weights import changes, fstab
from ktfleet.plan.weights.changes import program
from ktfleet.recipes import Recipe
from ktfleet.sources import Converter, FolderSource, HubSource, RsyncSource, Weights
from ktfleet.weights.job import load
from tests.states import converged, with_data_disk, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
DATA = Data(mount="/srv/models", label="models")
CONFIG = Workstation(data=DATA, weights=Weights())
FOLDER = "/srv/models/DeepSeek-V4-Flash/60d8d70770c6776ff598c94bb586a859a38244f1"
EVERY = (
    *(changes.add_to_fstab, changes.mount, changes.own, changes.install_tools, changes.prepare),
    *(changes.start_download, changes.start_conversion),
)
TOKEN = "/etc/ktfleet-token"


def made(config: Workstation = CONFIG, recipe: Recipe = RECIPE) -> Plan:
    return plan.make(workstation(), config, recipe)


def fresh(**links: str | None) -> HostState:
    """A new system beside an old data disk, which is not mounted."""
    state = workstation()
    root = state.mounts["/"]
    return state.model_copy(
        update={
            "mounts": {**state.mounts, DATA.mount: root},
            "links": {**state.links, DATA.device: "../../sdb1", **links},
            "texts": {**state.texts, FSTAB: "UUID=1 / ext4 defaults 0 1"},
        }
    )


def changed(state: HostState, owner: int | None = 790, **mount: Any) -> HostState:
    held = state.mounts[DATA.mount].model_copy(update=mount)
    folder = Folder(uid=owner, gid=0, mode="0755") if owner is not None else None
    folders = {**state.folders, DATA.mount: folder}
    return state.model_copy(update={"mounts": {**state.mounts, DATA.mount: held}, "folders": folders})


def refused(state: HostState, config: Workstation = CONFIG, recipe: Recipe = RECIPE) -> list[str]:
    return [str(problem) for problem in plan.make(state, config, recipe).refusals]


def test_a_new_system_beside_an_old_disk_is_admitted() -> None:
    assert refused(fresh()) == []
    assert made().unknown == made(Workstation(data=DATA)).unknown


def test_a_missing_disk() -> None:
    (line,) = refused(fresh(**{DATA.device: None}))
    assert line.startswith(
        "the data disk is missing: seen no /dev/disk/by-label/models, wanted a file system with LABEL=models; connect"
    )


def test_the_root_file_system_is_never_the_data_disk() -> None:
    (line,) = refused(fresh(**{DATA.device: "../../nvme0n1p2"}))
    assert line.startswith("the data disk is the root file system: seen LABEL=models on /dev/nvme0n1p2, which holds /")


@pytest.mark.parametrize(("line", "seen"), [
    ("UUID=7 /srv/models ext4 defaults 0 2", "UUID=7"),
    ("/dev/sdc1 /srv/models/ ext4 defaults 0 2", "/dev/sdc1"),
])  # fmt: skip
def test_an_fstab_that_mounts_something_else_there(line: str, seen: str) -> None:
    state = fresh()
    state = state.model_copy(update={"texts": {**state.texts, FSTAB: line}})
    (found,) = refused(state)
    assert found.startswith(
        f"/etc/fstab mounts something else on /srv/models: seen {seen}, wanted LABEL=models; remove"
    )


def test_an_fstab_that_was_not_read_whole() -> None:
    state = fresh()
    state = state.model_copy(update={"texts": {**state.texts, FSTAB: "# x\n" * 1024}})
    (line,) = refused(state)
    assert line.startswith("/etc/fstab is too long to be read")


@pytest.mark.parametrize(("mount", "line"), [
    ({"device": "/dev/sdc1"}, "another disk is mounted on /srv/models: seen /dev/sdc1, wanted LABEL=models; `umount"),
    ({"read_only": True}, "the data disk is read-only: seen /dev/sdb1 mounted ro"),
    ({"owner": 1000}, "the data disk belongs to somebody else: seen user 1000, wanted 790, or root on a fresh one; if"),
    ({"size": 300 * 10**9}, "the data disk is too small: seen 300.0 GB on /dev/sdb1, wanted 309.8 GB (159.6 GB of"),
])  # fmt: skip
def test_a_mounted_disk_that_does_not_fit(mount: dict[str, Any], line: str) -> None:
    (found,) = refused(changed(with_data_disk(workstation(), made()), **mount))
    assert found.startswith(line)


@pytest.mark.parametrize("mount", [
    {"device": "/dev/mapper/vg-models"}, {"owner": 0}, {"owner": None}, {"size": None}, {"size": 310 * 10**9},
])  # fmt: skip
def test_a_mounted_disk_that_fits_or_cannot_be_told(mount: dict[str, Any]) -> None:
    assert refused(changed(with_data_disk(workstation(), made()), **mount)) == []


def test_what_the_configuration_lacks() -> None:
    (line,) = refused(workstation(), Workstation(weights=Weights()))
    assert line.startswith("weights without a data disk: seen data = None")
    none = RECIPE.model_copy(update={"checkpoint": None})
    (line,) = refused(fresh(), CONFIG, none)
    assert line.startswith("the recipe dsv4-flash-amxint4 names no checkpoint: seen no [checkpoint]")
    assert "revision (40 hex digits)" in line
    assert made(CONFIG, none).weights is None


def test_without_weights_nothing_is_done_and_it_is_said() -> None:
    wanted = made(Workstation())
    assert [change(wanted, workstation()) for change in EVERY] == [()] * len(EVERY)
    assert changes.skipped(wanted) == "no weights are got: the configuration says weights = None"
    assert changes.skipped(made()) is None


def test_a_converged_host_gets_no_command() -> None:
    wanted = made()
    state = with_data_disk(converged(wanted), wanted)
    assert [change(wanted, state) for change in EVERY] == [()] * len(EVERY)
    assert changes.nothing_to_download(wanted, state)
    assert changes.nothing_to_convert(wanted, state)


def test_a_fresh_host_gets_all_but_the_conversion_of_nothing() -> None:
    wanted = made()
    state = fresh()
    assert all(change(wanted, state) for change in EVERY if change is not changes.own)
    assert changes.own(wanted, changed(with_data_disk(workstation(), wanted), owner=0)) == (
        "chown 790:790 /srv/models",
    )
    assert "somebody else" in changes.own(wanted, changed(with_data_disk(workstation(), wanted), owner=1000))[0]


def test_what_is_at_work_is_not_started_again() -> None:
    wanted, state = made(), fresh()
    state = state.model_copy(
        update={"units": {**state.units, **dict.fromkeys((DOWNLOAD_UNIT, CONVERT_UNIT), Unit(active=True))}}
    )
    assert changes.start_download(wanted, state) == changes.start_conversion(wanted, state) == ()


def test_a_complete_checkpoint_is_not_fetched_and_still_converted() -> None:
    wanted = made()
    state = with_data_disk(converged(wanted), wanted)
    state = state.model_copy(update={"files": {**state.files, f"{FOLDER}-AMXINT4-p2/.ktfleet.json": None}})
    assert changes.start_download(wanted, state) == ()
    (start,) = changes.start_conversion(wanted, state)
    assert start.endswith("systemctl start --no-block ktfleet-convert.service")


def test_another_method_reads_the_checkpoint_itself() -> None:
    wanted = made(recipe=RECIPE.model_copy(update={"method": "MXFP4"}))
    assert wanted.weights
    assert (wanted.weights.shards, wanted.weights.converter) == (None, None)
    assert changes.not_converted(wanted) == "nothing is converted: MXFP4 reads the checkpoint itself"
    assert render(wanted, unit_file(CONVERT_UNIT)).content is None


def test_a_method_that_is_converted_in_a_way_nobody_knows_here_is_refused() -> None:
    """It is not taken for one that reads the checkpoint itself."""
    line, overlay = map(str, made(recipe=RECIPE.model_copy(update={"method": "AMXINT8"})).refusals)
    assert "the overlay for clamp" in overlay
    assert line.startswith("the recipe has no converted weights: seen AMXINT8, wanted AMXINT4; ")


def test_no_converter_is_a_choice() -> None:
    wanted = made(Workstation(data=DATA, weights=Weights(converter=None)))
    assert changes.not_converted(wanted) == "nothing is converted: the configuration says weights.converter = None"
    assert changes.start_conversion(wanted, fresh()) == ()


def test_the_job_says_everything(tmp_path: Path) -> None:
    (tmp_path / "job").write_text(render(made(), WEIGHTS_JOB).content or "")
    job = load(tmp_path / "job")
    assert job == made().weights
    assert (job.checkpoint, job.shards) == (FOLDER, f"{FOLDER}-AMXINT4-p2")
    assert job.shards_bytes == RECIPE.experts.total_bytes + 9_024_858_224
    assert job.converter
    assert (job.converter.python, job.converter.threads) == ("/opt/ktfleet/stack/bin/python", 40)
    assert job.converter.commit == Converter().commit


def test_the_token_is_systemds_alone() -> None:
    config = Workstation(data=DATA, weights=Weights(source=HubSource(token_file=TOKEN)))
    wanted = made(config)
    unit = render(wanted, unit_file(DOWNLOAD_UNIT)).content or ""
    assert f"\nLoadCredential=hub-token:{TOKEN}\n" in unit
    assert "token" not in (render(wanted, WEIGHTS_JOB).content or "")
    assert "LoadCredential" not in (render(made(), unit_file(DOWNLOAD_UNIT)).content or "")
    assert len(changes.start_download(wanted, fresh())) == 2


def test_the_probe_is_asked_for_what_decides() -> None:
    asked = request(CONFIG)
    assert {WEIGHTS, f"{FOLDER}/.ktfleet.json", f"{FOLDER}-AMXINT4-p2/.ktfleet.json", FSTAB} <= set(asked.files)
    assert DATA.device in asked.links
    assert FSTAB in asked.texts
    assert {DOWNLOAD_UNIT, CONVERT_UNIT} <= set(asked.units)
    assert {"git", "rsync"} <= set(asked.packages)


def test_the_old_fstab_is_kept() -> None:
    state = fresh()
    state = state.model_copy(update={"files": {**state.files, FSTAB: "its digest"}})
    assert any(f"cp -p {FSTAB} " in command for command in remember(made(), state))


@pytest.mark.parametrize(("source", "there", "names"), [
    (HubSource(), {}, "git"),
    (FolderSource(kind="folder", checkpoint="/a"), {}, "rsync git"),
    (RsyncSource(kind="rsync", checkpoint="nas:/a", shards="nas:/b"), {"git": "1"}, "rsync"),
])  # fmt: skip
def test_only_missing_tools_are_installed(source: Any, there: dict[str, str], names: str) -> None:
    state = fresh()
    state = state.model_copy(update={"packages": state.packages.model_copy(update={"installed": there})})
    (command,) = changes.install_tools(made(Workstation(data=DATA, weights=Weights(source=source))), state)
    assert f"--no-install-recommends {names} >/dev/null" in command


def shell(command: str, root: Path, **replaced: str) -> subprocess.CompletedProcess[str]:
    """Run it with a host's paths below `root`, and stand-ins before the real programs."""
    for path in (FSTAB, "/etc/.fstab", "/usr/local/lib/ktfleet", DATA.mount, TOKEN):
        command = re.sub(rf"(?<![\w/]){re.escape(path)}", f"{root}{path}", command)
    environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}", **replaced}
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("etc", "bin", "srv/models", "usr/local/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("mount", "umount", "systemctl"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/said\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("before", ["UUID=1 / ext4 defaults 0 1\n", "UUID=1 / ext4 defaults 0 1", "", None])
def test_the_line_is_added_to_fstab(root: Path, before: str | None) -> None:
    if before is not None:
        (root / "etc/fstab").write_text(before)
        (root / "etc/fstab").chmod(0o640)
    (command,) = changes.add_to_fstab(made(), fresh())
    done = shell(command, root)
    assert (done.returncode, done.stderr) == (0, "")
    text = (root / "etc/fstab").read_text().replace(str(root), "")
    assert text == (f"{before.strip()}\n" if before else "") + fstab.line(DATA) + "\n"
    assert fstab.mounts(text, DATA)
    if before is not None:
        assert (root / "etc/fstab").stat().st_mode & 0o777 == 0o640
    state = fresh()
    state = state.model_copy(update={"texts": {**state.texts, FSTAB: text.strip()}})
    assert changes.add_to_fstab(made(), state) == ()


def test_nothing_is_mounted_over_files(root: Path) -> None:
    (root / "srv/models/mine").write_text("")
    done = shell(changes.mount(made(), fresh())[0], root)
    assert done.returncode == 1
    assert "/srv/models is not empty and the data disk is not mounted there: seen files" in done.stderr


def test_a_mount_that_is_the_root_file_system_is_taken_back(root: Path) -> None:
    """The stand-in mounts nothing: the folder stays on the root file system, which counts as the same device."""
    *_, same = changes.mount(made(), fresh())
    done = shell(same.replace("stat -c %d /)", f"stat -c %d {root})"), root)
    assert done.returncode == 1
    assert done.stderr.startswith("the data disk is the root file system: seen the same device")
    assert (root / "said").read_text() == f"umount {root}/srv/models\n"


def test_the_program_arrives_whole(root: Path) -> None:
    command = changes.prepare(made(), fresh())[0]
    assert len(command) < 100_000, "one argument of a program may have 128 KiB, and sudo quotes it once more"
    done = shell(command, root)
    assert (done.returncode, done.stderr) == (0, "")
    seen = subprocess.run(
        ["sha256sum", root / "usr/local/lib/ktfleet/weights"], capture_output=True, text=True, check=True
    )
    assert seen.stdout.split()[0] == program().sha256


@pytest.mark.parametrize(("mode", "seen"), [(0o644, "644"), (None, "no file")])
def test_a_token_that_others_can_read_stops_the_start(root: Path, mode: int | None, seen: str) -> None:
    if mode:
        (root / TOKEN[1:]).write_text("hf_secret")
        (root / TOKEN[1:]).chmod(mode)
    config = Workstation(data=DATA, weights=Weights(source=HubSource(token_file=TOKEN)))
    done = shell(changes.start_download(made(config), fresh())[0], root)
    assert done.returncode == 1
    assert re.search(
        rf"the hub's token \S*{TOKEN} is not private: seen (root )?{seen}, wanted a file of root's", done.stderr
    )
    assert "hf_secret" not in done.stderr


@given(st.text(), st.text())
def test_no_fstab_raises(text: str, more: str) -> None:
    whole = f"{text}\n{fstab.line(DATA)}\n{more if fstab.spec(more, DATA.mount) is None else ''}"
    assert fstab.mounts(whole, DATA)


SHOWN = ["ActiveState=active", "Result=success", "ExecMainStatus=0"]


def progress(**fields: Any) -> str:
    return json.dumps({"state": "running", "step": "downloading the checkpoint", "problems": [], **fields})


@pytest.mark.parametrize(("fields", "line"), [
    ({"done": 63_100_000_000, "total": 159_600_000_000, "rate": 812_000_000, "left_s": 119},
     "downloading the checkpoint: 63.1 GB of 159.6 GB (39 %), 812.0 MB/s, 1 min left"),
    ({"done": 0, "total": 0, "rate": None, "left_s": None}, "downloading the checkpoint"),
    ({"done": 5_100_000_000, "total": 0, "rate": 10**6, "left_s": None}, "downloading the checkpoint: 5.1 GB so far, "
     "1.0 MB/s"),
    ({"done": 1, "total": 10**12, "rate": 10**6, "left_s": 10**6}, "downloading the checkpoint: 0.0 GB of 1000.0 GB "
     "(0 %), 1.0 MB/s, 277.8 h left"),
])  # fmt: skip
def test_how_far_it_is(fields: dict[str, Any], line: str) -> None:
    found = told.parse(DOWNLOAD_UNIT, ["Welcome", *SHOWN, progress(**fields)])
    assert found == told.Told("running", line)


def test_how_it_ended() -> None:
    ended = ["ActiveState=inactive", "Result=success", "ExecMainStatus=0"]
    assert told.parse(DOWNLOAD_UNIT, [*ended, progress(state="done")]) == told.Told(
        "done", "downloading the checkpoint"
    )
    failed = told.parse(DOWNLOAD_UNIT, [*ended, progress(state="failed", problems=["a: seen b, wanted c; d"])])
    assert failed == told.Told("failed", "", ("a: seen b, wanted c; d",))
    killed = ["ActiveState=failed", "Result=oom-kill", "ExecMainStatus=9"]
    for last in (progress(), "", "{", "[]"):
        found = told.parse(DOWNLOAD_UNIT, [*killed, last])
        assert found
        assert found.problems[0].startswith("ktfleet-download.service ended without a word: seen oom-kill, status 9")
    assert told.parse(DOWNLOAD_UNIT, ["nonsense"]) is None


@given(st.lists(st.text()))
def test_whatever_is_told_is_read(lines: list[str]) -> None:
    found = told.parse(DOWNLOAD_UNIT, [*SHOWN, *lines])
    assert found is not None


def judged(state: HostState, config: Workstation = CONFIG) -> dict[str, str]:
    return {found.key: found.result for found in verdict.drift(made(config), state)}


def test_the_drift_check_wants_the_disk_and_the_proofs() -> None:
    keys = ("data disk", "checkpoint", "converted weights", WEIGHTS)
    done = with_data_disk(converged(made()), made())
    assert [judged(done)[key] for key in keys] == ["pass"] * 4
    bare = with_data_disk(converged(made()), made(), weights=False)
    assert [judged(bare)[key] for key in keys] == ["pass", "fail", "fail", "pass"]
    assert judged(changed(done, mount="/"))["data disk"] == "fail"
    unread = done.model_copy(update={"unreadable": {f"{FOLDER}/.ktfleet.json": "input/output error"}})
    assert judged(unread)["checkpoint"] == "inconclusive"
    alone = Workstation(data=DATA, weights=Weights(converter=None))
    assert "converted weights" not in judged(bare, alone)
    assert not set(keys) & judged(converged(made(Workstation())), Workstation()).keys()
