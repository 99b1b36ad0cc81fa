"""The conversion: a stand-in converter out of a bare git repository on this machine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ktfleet.progress import Progress
from ktfleet.weights import convert, folders, manifest, program, verify
from ktfleet.weights.folders import Failed, partial
from ktfleet.weights.job import Converter, Copy, Job
from tests import hub
from tests.weights import SMALL, write_checkpoint

STAND_IN = Path(__file__).parents[2] / "converter.py"
PLACE = "kt-kernel/scripts/convert_cpu_weights_ds4.py"


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(folders, "MARGIN", 0)
    monkeypatch.setattr(convert, "SHARED_MEMORY", tmp_path / "shm")
    (tmp_path / "shm").mkdir()


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(("git", "-C", str(folder), *identity, *arguments), capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A bare repository's address, and the commit before its newest one."""
    work = tmp_path_factory.mktemp("git") / "work"
    (work / PLACE).parent.mkdir(parents=True)
    git(work, "init", "--quiet")
    (work / PLACE).write_text(STAND_IN.read_text())
    git(work, "add", ".")
    git(work, "commit", "-qm", "one")
    commit = git(work, "rev-parse", "HEAD")
    (work / PLACE).write_text("raise SystemExit('a newer one')\n")
    git(work, "commit", "-qam", "two")
    bare = work.parent / "upstream.git"
    subprocess.run(("git", "clone", "--quiet", "--bare", str(work), str(bare)), check=True)
    git(bare, "config", "uploadpack.allowFilter", "true")
    git(bare, "config", "uploadpack.allowAnySHA1InWant", "true")
    return f"file://{bare}", commit


def job(tmp_path: Path, upstream: tuple[str, str], **config: Any) -> Job:
    folder = tmp_path / "data/small"
    write_checkpoint(folder / hub.REVISION)
    sizes = {"layers": SMALL.layers, "experts": SMALL.experts, "hidden_size": SMALL.hidden}
    held = {**sizes, "moe_intermediate_size": SMALL.intermediate, **config}
    (folder / hub.REVISION / "config.json").write_text(json.dumps(held))
    (tmp_path / "scratch").mkdir(exist_ok=True)
    address, commit = upstream
    sha256 = hashlib.sha256(STAND_IN.read_bytes()).hexdigest()
    return Job(
        hub.NAME, hub.REVISION, str(folder / hub.REVISION), 5000, None, Copy("/none", None),
        str(folder / "shards-p2"), SMALL.total_bytes, SMALL,
        Converter(address, commit, PLACE, sha256, sys.executable, 4, "fp4"),
    )  # fmt: skip


def run(work: Job, tmp_path: Path) -> Progress:
    progress = Progress(None)
    convert.convert(work, progress, tmp_path / "scratch")
    return progress


def refused(work: Job, tmp_path: Path) -> list[str]:
    with pytest.raises(Failed) as caught:
        run(work, tmp_path)
    assert not Path(work.shards or "").exists()
    return [str(problem) for problem in caught.value.problems]


def test_converted_proven_named_and_not_again(tmp_path: Path, upstream: tuple[str, str]) -> None:
    work = job(tmp_path, upstream)
    run(work, tmp_path)
    folder = Path(work.shards or "")
    assert verify.converted(folder, SMALL, deep=True) == ()
    known = json.loads((folder / manifest.NAME).read_text())
    assert (known["converter"], known["pools"]) == (upstream[1], 2)
    assert all("sha256" in held for held in known["files"].values())
    nowhere = replace(work, converter=replace(work.converter, repository="file:///none", python="/none"))  # type: ignore[type-var]
    run(nowhere, tmp_path)


def test_the_rest_of_an_earlier_one_is_removed_first(tmp_path: Path, upstream: tuple[str, str]) -> None:
    """The machine went down in the conversion, and the converter left a layer in shared memory."""
    work = job(tmp_path, upstream)
    made = partial(Path(work.shards or ""))
    made.mkdir()
    (made / "model-00001-of-PLACEHOLDER.safetensors").write_bytes(b"half")
    (tmp_path / "shm/kt_convert_17").mkdir()
    (tmp_path / "shm/other").mkdir()
    run(work, tmp_path)
    assert verify.converted(Path(work.shards or ""), SMALL) == ()
    assert [path.name for path in (tmp_path / "shm").iterdir()] == ["other"]


@pytest.mark.parametrize(("how", "line"), [
    ("fail", "the conversion failed: seen no space left on the disk, wanted converted weights; free some"),
    ("half", "the conversion was not finished: seen 1 files named so"),
    ("one_pool", "made for another number of pools: seen 1, wanted 2"),
])  # fmt: skip
def test_a_conversion_that_went_wrong_is_not_taken(
    tmp_path: Path, upstream: tuple[str, str], how: str, line: str
) -> None:
    work = job(tmp_path, upstream, stand_in=how)
    assert refused(work, tmp_path)[0].startswith(line)
    assert verify.checkpoint(Path(work.checkpoint)) == (), "what was complete is not lost"
    run(job(tmp_path, upstream), tmp_path)


def test_another_file_at_the_commit(tmp_path: Path, upstream: tuple[str, str]) -> None:
    work = job(tmp_path, upstream)
    assert work.converter
    (line,) = refused(replace(work, converter=replace(work.converter, sha256="0" * 64)), tmp_path)
    assert line.startswith(f"the converter {PLACE} is another one: seen {work.converter.sha256}, wanted {'0' * 64};")


def test_a_commit_and_a_repository_that_are_not_there(tmp_path: Path, upstream: tuple[str, str]) -> None:
    work = job(tmp_path, upstream)
    assert work.converter
    for change in ({"commit": "0" * 40}, {"repository": f"file://{tmp_path}/none.git"}):
        converter = replace(work.converter, **change)
        (line,) = refused(replace(work, converter=converter), tmp_path)
        assert line.startswith(f"the converter cannot be fetched from {converter.repository}: seen fatal: ")
        assert f"wanted {PLACE} at commit {converter.commit}; repair the way there" in line


def test_without_a_checkpoint_or_a_converter(tmp_path: Path, upstream: tuple[str, str]) -> None:
    work = job(tmp_path, upstream)
    assert refused(replace(work, converter=None), tmp_path)[0].startswith("converted weights are missing: seen no ")
    absent = replace(work, checkpoint=f"{work.checkpoint}-none")
    assert refused(absent, tmp_path)[0].startswith("the checkpoint is missing: seen no ")


def test_a_disk_without_room(tmp_path: Path, upstream: tuple[str, str]) -> None:
    (line,) = refused(replace(job(tmp_path, upstream), shards_bytes=10**15), tmp_path)
    assert line.startswith(f"too little free space on {tmp_path}/data/small: seen")


def test_the_program_converts_and_says_why_not(
    tmp_path: Path, upstream: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "scratch"))
    work = job(tmp_path, upstream)
    (tmp_path / "job.json").write_text(work.to_json())
    monkeypatch.setattr(convert, "_run", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device", "/x")))
    assert program.main(["convert", str(tmp_path / "job.json")]) == 1
    assert capsys.readouterr().err.startswith("/x cannot be written or read: seen no space left on device, wanted a")
    monkeypatch.undo()
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "scratch"))
    monkeypatch.setattr(folders, "MARGIN", 0)
    assert program.main(["convert", str(tmp_path / "job.json")]) == 0
