"""The checkpoint, and converted weights if the source has them: got, proven, then given their names."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.progress import Progress, size_of
from ktfleet.weights import manifest, merged, verify
from ktfleet.weights.contents import File
from ktfleet.weights.folders import Failed, finish, partial, require_room
from ktfleet.weights.hub import UNFINISHED, Remote, Repository
from ktfleet.weights.job import Copy, Hub, Job
from ktfleet.weights.patience import Stopped
from ktfleet.weights.safetensors import Broken, open_regular, shown

FILES_AT_ONCE = 4
"""One connection seldom fills the line of a hub that is far away."""


def download(job: Job, progress: Progress, token: str | None = None) -> None:
    """Get what is not there yet. What is complete is used as it is. Raises Failed, OSError."""
    checkpoint, shards = Path(job.checkpoint), Path(job.shards) if job.shards else None
    missing = {} if have_checkpoint(job) else {"the checkpoint": job.checkpoint_bytes}
    if shards and not have_shards(job):
        missing["converted weights"] = job.shards_bytes
    had = {"the checkpoint": partial(checkpoint), "converted weights": partial(shards) if shards else checkpoint}
    require_room(job.work, {name: max(0, size - size_of(had[name])) for name, size in missing.items()})
    if "the checkpoint" in missing:
        if isinstance(job.source, Hub):
            _from_hub(job, job.source, progress, token)
        else:
            _copy(job.source.checkpoint, checkpoint, job.checkpoint_bytes, "copying the checkpoint", progress)
            _prove_checkpoint(job, partial(checkpoint))
            _named(partial(checkpoint), checkpoint, {"source": job.source.checkpoint, "revision": job.revision})
    if isinstance(job.source, Copy) and job.source.shards and shards and "converted weights" in missing:
        _copy(job.source.shards, shards, job.shards_bytes, "copying the converted weights", progress)
        prove_shards(job, partial(shards), progress)
        _named(partial(shards), shards, {"source": job.source.shards})


def have_checkpoint(job: Job) -> bool:
    """Whether it is complete already. One without a manifest (somebody else's copy) gets one. Raises Failed."""
    folder = Path(job.checkpoint)
    return _have(folder, lambda: _prove_checkpoint(job, folder), {"revision": job.revision})


def have_shards(job: Job) -> bool:
    """Whether the converted weights are complete already. Raises Failed."""
    if job.shards is None or job.layout is None:
        return False
    folder, layout = Path(job.shards), job.layout

    def prove() -> None:
        _fail_if(folder, verify.converted(folder, layout))

    return _have(folder, prove, {"pools": layout.pools})


def _have(folder: Path, prove: Callable[[], None], about: dict[str, object]) -> bool:
    if not folder.exists():
        return False
    prove()
    if not (folder / manifest.NAME).exists():
        manifest.write(folder, _files(folder), {}, about)
    return True


def _fail_if(folder: Path, problems: tuple[Problem, ...]) -> None:
    if problems:
        do = "move it away, then run deploy.py again: it is made anew"
        raise Failed(*problems, Problem(f"{folder} is not used", f"{len(problems)} problems", "none", do))


def _prove_checkpoint(job: Job, folder: Path) -> None:
    _fail_if(folder, verify.checkpoint(folder))
    if job.index_sha256 is None:
        return
    with open_regular(folder / merged.INDEX) as file:
        seen = hashlib.sha256(file.read()).hexdigest()
    if seen != job.index_sha256:
        what = f"{folder} is another checkpoint"
        do = f"get revision {job.revision} of {job.repository}, or move this one away"
        raise Failed(Problem(what, f"an index with sha256 {seen}", job.index_sha256, do))


def prove_shards(job: Job, folder: Path, progress: Progress) -> None:
    """Read every byte of new converted weights once; the hashes are kept in the manifest. Raises Failed."""
    assert job.layout is not None
    progress.begin("proving the converted weights (every byte is read)", job.shards_bytes, job.shards_bytes)
    _fail_if(folder, verify.converted(folder, job.layout, deep=True))


def _from_hub(job: Job, source: Hub, progress: Progress, token: str | None) -> None:
    folder, made = Path(job.checkpoint), partial(Path(job.checkpoint))
    made.mkdir(parents=True, exist_ok=True)
    repository = Repository(source.endpoint, job.repository, job.revision, token)
    progress.begin("asking the hub for its files", job.checkpoint_bytes)
    remotes = repository.files()
    there = {remote.path for remote in remotes if _has(made, remote)}
    _remove_others(made, remotes)
    total = sum(remote.size for remote in remotes)
    have = size_of(made)
    progress.begin("downloading the checkpoint", total, have)
    require_room(made, {"the checkpoint": max(0, total - have)})
    # Begun ones first: what a last run spent on them is not left lying.
    todo = sorted(
        (remote for remote in remotes if remote.path not in there),
        key=lambda remote: not (made / (remote.path + UNFINISHED)).exists(),
    )
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        jobs = [pool.submit(repository.fetch, remote, made, progress) for remote in todo]
        wait(jobs, return_when=FIRST_EXCEPTION)
        # Before any result is asked for: what one of them ends with ends the others too.
        if any(job.done() and job.exception() for job in jobs):
            repository.stop.set()
            pool.shutdown(cancel_futures=True)
        _raise_first(jobs)
    _prove_checkpoint(job, made)
    hashes = {remote.path: remote.sha256 for remote in remotes if remote.sha256}
    about = {"source": source.endpoint, "repository": job.repository, "revision": job.revision}
    finish(made, folder, {remote.path: File(remote.size) for remote in remotes}, hashes, about)


def _raise_first(jobs: list[Future[str]]) -> None:
    """What ended the others, not that they were ended."""
    errors = [job.exception() for job in jobs if not job.cancelled()]
    found = [error for error in errors if error is not None and not isinstance(error, Stopped)]
    if found:
        raise found[0]


def _has(folder: Path, remote: Remote) -> bool:
    """A file gets its name here only after its hash was right."""
    path = folder / remote.path
    return path.is_file() and not path.is_symlink() and path.stat().st_size == remote.size


def _remove_others(folder: Path, remotes: list[Remote]) -> None:
    """Leftovers of another revision, in a folder that is ours alone."""
    wanted = {name for remote in remotes for name in (remote.path, remote.path + UNFINISHED)}
    for path in list(folder.rglob("*")):
        if not path.is_dir() and str(path.relative_to(folder)) not in wanted:
            path.unlink()


def _copy(source: str, folder: Path, total: int, step: str, progress: Progress) -> None:
    """By rsync, into the unfinished folder: again after a cut it goes on, file by file and within them."""
    made = partial(folder)
    made.mkdir(parents=True, exist_ok=True)
    progress.begin(step, total, size_of(made))
    # A hub's own cache is a folder of symlinks: what they lead to is copied.
    options = [
        "--recursive",
        "--copy-links",
        "--times",
        "--delete",
        "--partial-dir=.rsync-partial",
        "--timeout=120",
        "--no-motd",
    ]
    # As a variable: with --rsh, rsync would speak ssh to a daemon too.
    ssh = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ServerAliveInterval=30"
    command = ["rsync", *options, f"--exclude=/{manifest.NAME}*", "--", f"{source}/", f"{made}/"]
    with progress.watching(lambda: size_of(made)):
        done = run(command, RSYNC_RSH=ssh)
    if done.returncode:
        do = f"see what `sudo -u ktfleet {shlex.join(command[:1])} {shlex.quote(source)}/` says there"
        lines = [line for line in done.stdout.splitlines() if line.strip()] or [f"exit {done.returncode}"]
        said = next((line for line in lines if line.startswith(("rsync:", "@ERROR", "ssh:"))), lines[-1])
        raise Failed(Problem(f"{shown(source)} cannot be copied", shown(said, 400), "all of it", do))


def run(command: list[str], folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Another program with both outputs in one. Raises Failed when it is not there."""
    try:
        return subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
            check=False,
        )
    except OSError as error:
        seen = (error.strerror or str(error)).lower()
        raise Failed(Problem(f"{command[0]} cannot be started", seen, "it", "install it on the host")) from None


def _named(made: Path, folder: Path, about: dict[str, object]) -> None:
    try:
        known = manifest.read(made).get("files", {})
    except Broken as error:
        raise Failed(Problem(f"{manifest.NAME} in {made}", error.seen, error.wanted, "run deploy.py again")) from None
    hashes = {name: held["sha256"] for name, held in known.items() if "sha256" in held}
    finish(made, folder, _files(made), hashes, about)


def _files(folder: Path) -> dict[str, File]:
    """Every file of a folder that was proven, less the manifest itself."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(manifest.NAME))
    return {str(path.relative_to(folder)): File(path.stat().st_size) for path in found}
