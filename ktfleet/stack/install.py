"""One environment, built by uv from a lock with hashes: beside the one in use, complete or not there at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.progress import Progress
from ktfleet.stack.job import COMPLETE, Job
from ktfleet.translate import translate

LOCK = "lock.txt"
"""In the environment: what it was built from."""


FULL = 1 << 30
"""Bytes. With less free, what uv has fetched is not kept for the next try: the host needs the room."""


class Failed(Exception):
    """The work ends here, with this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def install(job: Job, progress: Progress) -> None:
    """Build it, unless it is complete. Raises Failed, OSError; then nothing of it is left but what uv has fetched."""
    folder = Path(job.folder)
    if is_complete(job):
        return
    _require_the_lock(job)
    folder.parent.mkdir(parents=True, exist_ok=True)
    progress.begin("removing what is not used any more", 0)
    for other in _unused(job):
        shutil.rmtree(other)
    try:
        _build(job, progress)
    except (Failed, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        if shutil.disk_usage(folder.parent).free < FULL:
            shutil.rmtree(job.cache, ignore_errors=True)
        raise
    shutil.rmtree(job.cache, ignore_errors=True)


def is_complete(job: Job) -> bool:
    """Whether what has its name was built to the end."""
    try:
        return Path(job.complete).read_text(encoding="utf-8").strip() == job.name
    except FileNotFoundError:
        return False


def _require_the_lock(job: Job) -> None:
    seen = hashlib.sha256(Path(job.lock).read_bytes()).hexdigest()
    if seen != job.lock_sha256:
        do = "run deploy.py again: it uploads the lock"
        raise Failed(Problem(f"{job.lock} is not the wanted lock", f"sha256 {seen}", job.lock_sha256, do))


def _unused(job: Job) -> Iterator[Path]:
    """Whatever is not in use: so there are two environments at most, and the one in use becomes the one to go back to.

    One whose files a process has mapped stays: the server may still run in what `current` no longer means.
    """
    current = os.path.realpath(job.current)
    for found in sorted(Path(job.folder).parent.iterdir()):
        if str(found.resolve()) != current and not _mapped(found):
            yield found


def _mapped(folder: Path) -> bool:
    inside = f" {folder.resolve()}/"
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if inside in maps.read_text(encoding="utf-8", errors="replace"):
                return True
        except OSError:  # ended meanwhile
            continue
    return False


def _build(job: Job, progress: Progress) -> None:
    folder = Path(job.folder)
    if job.managed:
        mirror = ("--mirror", job.python_mirror) if job.python_mirror else ()
        get = ("python", "install", "--no-bin", "--install-dir", job.pythons, *mirror, job.python)
        _uv(job, progress, f"getting Python {job.python}", get)
    kind = "--managed-python" if job.managed else "--no-managed-python"
    # Scripts hold the path of their environment: it is built where it stays.
    _uv(job, progress, "making the environment", ("venv", "--clear", kind, "--python", job.python, job.folder))
    shutil.copyfile(job.lock, folder / LOCK)
    # The service's user cannot write there: without bytecode every start would compile everything again.
    strict = ("--require-hashes", "--only-binary", ":all:", "--no-deps", "--compile-bytecode")
    into = ("--python", f"{job.folder}/bin/python", *strict, *_sources(job), "--requirements", str(folder / LOCK))
    _uv(job, progress, "installing the packages", ("pip", "install", *into))
    # Before the last file, so that a cut of the power leaves no complete environment with empty files.
    os.sync()
    new = folder / f"{COMPLETE}.new"
    new.write_text(f"{job.name}\n", encoding="utf-8")
    new.replace(folder / COMPLETE)
    os.sync()


def _sources(job: Job) -> tuple[str, ...]:
    index = ("--default-index", job.index) if job.index else ("--no-index",) if job.wheels else ()
    return (*index, *(("--find-links", job.wheels) if job.wheels else ()))


def _uv(job: Job, progress: Progress, step: str, arguments: tuple[str, ...]) -> None:
    """Run uv. It is told everything here: neither the host's configuration nor its environment has a say."""
    common = ("--no-config", "--no-progress", "--color", "never", "--cache-dir", job.cache)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environment |= {"UV_PYTHON_INSTALL_DIR": job.pythons, "UV_PYTHON_DOWNLOADS": "manual"}
    parent = Path(job.folder).parent
    free = shutil.disk_usage(parent).free
    progress.begin(step, 0)
    # What the disk lost since is how far it is: uv does not tell it, and counting half a million files takes long.
    with progress.watching(lambda: max(0, free - shutil.disk_usage(parent).free)):
        done = _run((job.uv, *arguments, *common), environment)
    print(done.stdout, flush=True)
    if done.returncode:
        raise Failed(translate(done.stdout) or _unknown(step, done.stdout))


def _run(command: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        do = "deploy from a controller with this host's architecture: its own uv is what is uploaded"
        seen = (error.strerror or str(error)).lower()
        raise Failed(Problem("uv cannot be started", seen, "a program for this machine", do)) from None


def _unknown(step: str, said: str) -> Problem:
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if line.startswith("error:")), -1)
    seen = " ".join(lines[first:])[:300] or "nothing"
    return Problem(f"uv failed while {step}", seen, "none", "read `journalctl -u ktfleet-stack` there")
