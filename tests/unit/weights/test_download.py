"""A checkpoint from a hub on loopback, and from an rsync daemon: cut, wrong, refused, resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ktfleet.progress import Progress
from ktfleet.weights import download, folders, manifest, patience, program, verify
from ktfleet.weights.folders import Failed
from ktfleet.weights.job import Copy, Hub, Job, load
from tests import hub as hubs
from tests.hub import running
from tests.weights import SMALL, write_checkpoint, write_merged

BIG = "model-00002-of-00002.safetensors"
SMALL_FILE = "config.json"
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LONGEST_WAIT_S", 0.01)
    monkeypatch.setattr(folders, "MARGIN", 0)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[hubs.Hub]:
    folder = write_checkpoint(tmp_path / "hub")
    (folder / "inference").mkdir()
    (folder / "inference/model.py").write_text("pass\n")
    with running(hubs.Hub(folder)) as made:
        yield made


def job(tmp_path: Path, hub: hubs.Hub, **changes: Any) -> Job:
    folder = tmp_path / "data/small"
    folder.mkdir(parents=True, exist_ok=True)
    size = sum(path.stat().st_size for path in hub.folder.rglob("*") if path.is_file())
    made = Job(hubs.NAME, hubs.REVISION, str(folder / hubs.REVISION), size, None, Hub(hub.url))
    return replace(made, **changes)


def run(job: Job, token: str | None = None) -> Progress:
    progress = Progress(None)
    download.download(job, progress, token)
    return progress


def refused(job: Job, token: str | None = None) -> list[str]:
    with pytest.raises(Failed) as caught:
        run(job, token)
    assert not Path(job.checkpoint).exists()
    return [str(problem) for problem in caught.value.problems]


def same(one: Path, other: Path) -> bool:
    names = [
        sorted(str(p.relative_to(f)) for p in f.rglob("*") if p.is_file() and p.name != manifest.NAME)
        for f in (one, other)
    ]
    return names[0] == names[1] and all((one / n).read_bytes() == (other / n).read_bytes() for n in names[0])


def test_everything_arrives_is_proven_and_kept(tmp_path: Path, hub: hubs.Hub) -> None:
    work = job(tmp_path, hub)
    progress = run(work)
    folder = Path(work.checkpoint)
    assert same(hub.folder, folder)
    assert progress.done == progress.total == work.checkpoint_bytes == hub.sent
    known = json.loads((folder / manifest.NAME).read_text())
    assert (known["revision"], known["repository"]) == (hubs.REVISION, hubs.NAME)
    assert known["files"][BIG]["sha256"] == hashlib.sha256((folder / BIG).read_bytes()).hexdigest()
    assert verify.checkpoint(folder, deep=True) == ()
    assert not folders.partial(folder).exists()


def test_what_is_complete_is_not_fetched_again(tmp_path: Path, hub: hubs.Hub) -> None:
    work = job(tmp_path, hub)
    run(work)
    hub.requests.clear()
    run(work)
    assert hub.requests == []


def test_somebody_elses_complete_copy_is_used_and_gets_a_manifest(tmp_path: Path, hub: hubs.Hub) -> None:
    work = job(tmp_path, hub)
    shutil.copytree(hub.folder, work.checkpoint)
    run(work)
    assert hub.requests == []
    assert (Path(work.checkpoint) / manifest.NAME).exists()


def test_a_broken_folder_in_its_place_is_left_alone(tmp_path: Path, hub: hubs.Hub) -> None:
    work = job(tmp_path, hub)
    shutil.copytree(hub.folder, work.checkpoint)
    (Path(work.checkpoint) / BIG).unlink()
    with pytest.raises(Failed) as caught:
        run(work)
    assert str(caught.value.problems[0]).startswith(f"files of the index are missing: seen {BIG}")
    assert (Path(work.checkpoint) / SMALL_FILE).exists()


def test_cut_connections_go_on_where_they_stopped(tmp_path: Path, hub: hubs.Hub) -> None:
    hub.errors = {BIG: [("cut", 100), ("cut", 50), 503, ("cut", 1)]}
    work = job(tmp_path, hub)
    progress = run(work)
    asked = [range_ for path, range_, _ in hub.requests if path == f"/cdn/{BIG}"]
    assert asked == [None, "bytes=100-", "bytes=150-", "bytes=150-", "bytes=151-"]
    assert hub.sent == work.checkpoint_bytes == progress.done
    assert same(hub.folder, Path(work.checkpoint))


def test_a_later_run_goes_on_where_the_first_one_gave_up(tmp_path: Path, hub: hubs.Hub) -> None:
    hub.errors = {BIG: [("cut", 100), *[503] * patience.TRIES]}
    work = job(tmp_path, hub)
    (line,) = refused(work)
    assert line.startswith(
        f"cannot be had: {BIG} of {hubs.NAME} at {hubs.REVISION[:12]} from {hub.url}: seen Service Una"
    )
    hub.requests.clear()
    run(work)
    assert hub.files == [BIG], "what was complete is not fetched again"
    assert [range_ for path, range_, _ in hub.requests if path == f"/cdn/{BIG}"] == ["bytes=100-"]
    assert hub.sent == work.checkpoint_bytes


def test_a_server_without_ranges_begins_anew(tmp_path: Path, hub: hubs.Hub) -> None:
    hub.ranges, hub.errors = False, {BIG: [("cut", 100)]}
    work = job(tmp_path, hub)
    progress = run(work)
    assert same(hub.folder, Path(work.checkpoint))
    assert progress.done == work.checkpoint_bytes


@pytest.mark.parametrize("name", [BIG, SMALL_FILE])
def test_wrong_bytes_are_fetched_again_and_never_kept(tmp_path: Path, hub: hubs.Hub, name: str) -> None:
    hub.wrong = {name: 2}
    work = job(tmp_path, hub)
    progress = run(work)
    assert same(hub.folder, Path(work.checkpoint))
    assert progress.done == work.checkpoint_bytes


def test_bytes_that_stay_wrong_are_refused(tmp_path: Path, hub: hubs.Hub) -> None:
    hub.wrong = {BIG: 99}
    (line,) = refused(job(tmp_path, hub))
    assert f"seen another hash, {patience.WRONG_TRIES} times" in line
    assert line.startswith(f"other bytes: {BIG} of {hubs.NAME}")
    assert not list(folders.partial(Path(job(tmp_path, hub).checkpoint)).glob(f"{BIG}*"))


def test_the_hubs_wish_to_wait_is_respected(tmp_path: Path, hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("threading.Event.wait", lambda self, seconds=None: waited.append(seconds))
    hub.errors, hub.headers = {BIG: [429]}, {"Retry-After": "7"}
    work = job(tmp_path, hub)
    progress = Progress(None)
    repository = download.Repository(hub.url, hubs.NAME, hubs.REVISION)
    remote = next(remote for remote in repository.files() if remote.path == BIG)
    repository.fetch(remote, Path(work.checkpoint).parent, progress)
    assert 7.0 in waited


def test_the_token_goes_to_the_hub_and_nowhere_else(tmp_path: Path, hub: hubs.Hub) -> None:
    hub.token = TOKEN
    work = job(tmp_path, hub)
    run(work, TOKEN)
    assert {sent for path, _, sent in hub.requests if path.startswith("/cdn/")} == {None}
    assert {sent for path, _, sent in hub.requests if not path.startswith("/cdn/")} == {f"Bearer {TOKEN}"}
    every = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in content for content in every)


@pytest.mark.parametrize(("token", "do"), [(None, "put a token"), ("hf_other", "put another token")])
def test_a_refused_token_is_one_line_without_it(tmp_path: Path, hub: hubs.Hub, token: str | None, do: str) -> None:
    hub.token = TOKEN
    (line,) = refused(job(tmp_path, hub), token)
    assert "the hub refuses the list of files of example/small-model" in line
    assert "seen 401 Unauthorized" in line
    assert do in line
    assert "hf_" not in line


def test_another_revision_is_not_there(tmp_path: Path, hub: hubs.Hub) -> None:
    (line,) = refused(job(tmp_path, hub, revision="f" * 40))
    assert line.startswith("the hub does not give the list of files of example/small-model at ffffffffffff")
    assert "seen 404 Not Found" in line


def test_nobody_listens(tmp_path: Path, hub: hubs.Hub) -> None:
    (line,) = refused(job(tmp_path, hub, source=Hub("http://127.0.0.1:9")))
    assert "Connection refused" in line
    assert line.endswith("run deploy.py again: it goes on where it stopped")


@pytest.mark.parametrize(("listing", "seen"), [
    ([], "JSON that is a list"),
    ({"sha": "0" * 40, "siblings": []}, f"revision {'0' * 40}"),
    ({"sha": hubs.REVISION, "siblings": []}, "no files"),
    *[({"sha": hubs.REVISION, "siblings": [{"rfilename": name, "size": 1, "blobId": "0" * 40}]}, "a file described as")
      for name in ("../x", "/etc/x", "a/../../x", "a//b", ".", "..", "", 3)],
    ({"sha": hubs.REVISION, "siblings": [{"rfilename": "x", "size": 1}]}, "a file described as"),
    ({"sha": hubs.REVISION, "siblings": [{"rfilename": "x", "size": -1, "blobId": "0" * 40}]}, "a file described as"),
    ({"sha": hubs.REVISION, "siblings": [{"rfilename": "x", "size": 1, "blobId": "0" * 40}] * 2}, "a file twice"),
])  # fmt: skip
def test_a_list_that_lies(tmp_path: Path, hub: hubs.Hub, listing: Any, seen: str) -> None:
    hub.listing = listing
    (line,) = refused(job(tmp_path, hub))
    assert line.startswith(f"the list of files from {hub.url} is broken: seen {seen}")
    assert not list(tmp_path.rglob("x"))


def test_another_index_than_the_pinned_one(tmp_path: Path, hub: hubs.Hub) -> None:
    lines = refused(job(tmp_path, hub, index_sha256="0" * 64))
    assert "is another checkpoint: seen an index with sha256" in lines[0]


def test_a_disk_without_room_is_said_before_anything_is_fetched(tmp_path: Path, hub: hubs.Hub) -> None:
    work = job(tmp_path, hub, checkpoint_bytes=10**15, shards=str(tmp_path / "data/small/s"), shards_bytes=10**15)
    (line,) = refused(replace(work, layout=SMALL, source=Copy(str(hub.folder), None)))
    assert line.startswith(f"too little free space on {tmp_path}/data/small: seen")
    assert "(1000000.0 GB for the checkpoint, 1000000.0 GB for converted weights to come)" in line


def test_a_second_run_says_who_is_at_work(tmp_path: Path, hub: hubs.Hub, capsys: pytest.CaptureFixture[str]) -> None:
    work = job(tmp_path, hub)
    (tmp_path / "job.json").write_text(work.to_json())
    with folders.only_one(work.work, "download"):
        assert program.main(["download", str(tmp_path / "job.json")]) == 1
    assert "another run works on these weights: seen download, pid" in capsys.readouterr().err
    assert program.main(["download", str(tmp_path / "job.json")]) == 0


def test_the_program_tells_how_far_it_is(tmp_path: Path, hub: hubs.Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = TOKEN
    (tmp_path / "run").mkdir()
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / program.TOKEN).write_text(TOKEN + "\n")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    (tmp_path / "job.json").write_text(job(tmp_path, hub).to_json())
    assert program.main(["download", str(tmp_path / "job.json")]) == 1
    told = json.loads((tmp_path / "run/progress.json").read_text())
    assert (told["state"], len(told["problems"])) == ("failed", 1)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    assert program.main(["download", str(tmp_path / "job.json")]) == 0
    told = json.loads((tmp_path / "run/progress.json").read_text())
    assert (told["state"], told["problems"], told["done"]) == ("done", [], told["total"])
    assert program.main(["verify", "--deep", str(tmp_path / "job.json")]) == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"source": {"endpoint": "x"}, "layout": null, "converter": null}'])
def test_a_job_that_is_none(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.json").write_text(text)
    assert program.main(["download", str(tmp_path / "job.json")]) == 1
    assert capsys.readouterr().err.startswith(f"the job {tmp_path}/job.json cannot be read: seen")


def test_a_job_survives_its_file(tmp_path: Path, hub: hubs.Hub) -> None:
    for work in (job(tmp_path, hub), job(tmp_path, hub, source=Copy("/a", "/b"), layout=SMALL)):
        (tmp_path / "job.json").write_text(work.to_json())
        assert load(tmp_path / "job.json") == work


@contextmanager
def rsync_daemon(folder: Path, module: Path) -> Iterator[str]:
    """Serve a folder; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = (
        f"use chroot = no\nport = {port}\naddress = 127.0.0.1\n[models]\npath = {module}\nread only = yes\nuid = 0\n"
    )
    (folder / "rsyncd.conf").write_text(settings)
    daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={folder / 'rsyncd.conf'}"])
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"rsync://127.0.0.1:{port}/models"
    finally:
        daemon.terminate()
        daemon.wait()


def test_checkpoint_and_shards_by_rsync(tmp_path: Path, hub: hubs.Hub) -> None:
    write_merged(tmp_path / "shards", SMALL)
    shards = tmp_path / "data/small/shards-p2"
    with rsync_daemon(tmp_path, tmp_path) as address:
        source = Copy(f"{address}/hub", f"{address}/shards")
        run(job(tmp_path, hub, source=source, shards=str(shards), layout=SMALL, shards_bytes=SMALL.total_bytes))
    assert same(tmp_path / "hub", Path(job(tmp_path, hub).checkpoint))
    assert verify.converted(shards, SMALL, deep=True) == ()
    assert json.loads((shards / manifest.NAME).read_text())["files"]


def test_a_local_folder_and_one_that_is_not_there(tmp_path: Path, hub: hubs.Hub) -> None:
    (line,) = refused(job(tmp_path, hub, source=Copy(str(tmp_path / "none"), None)))
    assert line.startswith(f"{tmp_path}/none cannot be copied: seen rsync:")
    assert "No such file or directory" in line
    run(job(tmp_path, hub, source=Copy(str(hub.folder), None)))
    assert same(hub.folder, Path(job(tmp_path, hub).checkpoint))


def test_a_hubs_cache_of_symlinks_is_copied_as_files(tmp_path: Path, hub: hubs.Hub) -> None:
    (tmp_path / "blob").write_bytes((hub.folder / BIG).read_bytes())
    (hub.folder / BIG).unlink()
    (hub.folder / BIG).symlink_to(tmp_path / "blob")
    run(job(tmp_path, hub, source=Copy(str(hub.folder), None)))
    assert not (Path(job(tmp_path, hub).checkpoint) / BIG).is_symlink()


def test_a_broken_source_is_not_taken(tmp_path: Path, hub: hubs.Hub) -> None:
    (hub.folder / BIG).write_bytes(b"short")
    lines = refused(job(tmp_path, hub, source=Copy(str(hub.folder), None)))
    assert lines[0].startswith(f"{BIG} is broken: seen 5 bytes")
