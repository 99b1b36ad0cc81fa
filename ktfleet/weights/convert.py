"""AMXINT4 weights made from the checkpoint, by the upstream converter at a pinned commit."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.progress import Progress, size_of
from ktfleet.weights import download, manifest
from ktfleet.weights.contents import File
from ktfleet.weights.folders import Failed, finish, partial, require_room
from ktfleet.weights.job import Converter, Job
from ktfleet.weights.safetensors import shown

SHARED_MEMORY = Path("/dev/shm")
"""The converter keeps a layer there (3.2 GB), and leaves it behind when it is stopped."""

INSTALL = "run deploy.py again: it installs it"

KNOWN = (
    (r"No space left on device|errno 28", "no space left on the disk", "free some, then run deploy.py again"),
    (r"CUDA out of memory|OutOfMemoryError", "not enough memory on the card", "stop what uses it: `nvidia-smi`"),
    (r"No CUDA GPUs|Found no NVIDIA driver|CUDA driver version is insufficient", "no usable card",
     "run checks/gpu.py: it says what is wrong with the card"),
    (r"No module named '?(\w+)", "a module is missing in the server's environment", "run deploy.py again"),
    (r"Illegal instruction|exit -4$", "an illegal instruction", "see checks of the stack: the wheel's CPU variant"),
    (r"exit -9$|Cannot allocate memory|MemoryError", "killed, or not enough memory", "free memory (40 GB), then again"),
)  # fmt: skip
"""What the converter says -> what that means, and what to do."""


def convert(job: Job, progress: Progress, scratch: Path) -> None:
    """Convert, unless complete weights are there. `scratch`: a folder for the converter's own file.

    A conversion that was stopped begins anew: the converter cannot go on in the middle. Raises Failed, OSError.
    """
    if job.shards is None or job.layout is None or download.have_shards(job):
        return
    if job.converter is None:
        do = "set weights.converter, or give the source's shards"
        raise Failed(Problem("converted weights are missing", f"no {job.shards}", "a complete folder", do))
    if not download.have_checkpoint(job):
        do = "run deploy.py again: it downloads first"
        raise Failed(Problem("the checkpoint is missing", f"no {job.checkpoint}", "a complete one", do))
    folder, made = Path(job.shards), partial(Path(job.shards))
    progress.begin("getting the converter", 0)
    program = fetch(job.converter, scratch)
    if made.exists():
        shutil.rmtree(made)
    require_room(job.work, {"converted weights": job.shards_bytes})
    with _clean_shared_memory():
        _run(job, program, made, progress)
    download.prove_shards(job, made, progress)
    known = manifest.read(made)["files"]
    hashes = {name: held["sha256"] for name, held in known.items() if "sha256" in held}
    about = {"converter": job.converter.commit, "revision": job.revision, "pools": job.layout.pools}
    finish(made, folder, {name: File(held["size"]) for name, held in known.items()}, hashes, about)


def fetch(converter: Converter, scratch: Path) -> Path:
    """The converter's file out of its repository, if its bytes are the pinned ones. Raises Failed, OSError."""
    target = scratch / f"{converter.sha256}.py"
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == converter.sha256:
        return target
    repository = scratch / "git"
    shutil.rmtree(repository, ignore_errors=True)
    found = _blob(converter, repository)
    shutil.rmtree(repository, ignore_errors=True)
    seen = hashlib.sha256(found).hexdigest()
    if seen != converter.sha256:
        do = f"compare {converter.repository} with the upstream one; do not go on before they are equal"
        raise Failed(Problem(f"the converter {converter.path} is another one", seen, converter.sha256, do))
    new = target.with_suffix(".new")
    new.write_bytes(found)
    new.rename(target)
    return target


def _blob(converter: Converter, repository: Path) -> bytes:
    """The file at the commit. Of the repository's other files nothing is fetched, where the server can do that."""
    inside = ("-C", str(repository))
    steps = (
        ("init", "--quiet", "--bare", str(repository)),
        (*inside, "remote", "add", "origin", converter.repository),
        (*inside, "config", "remote.origin.promisor", "true"),
        (*inside, "config", "remote.origin.partialclonefilter", "blob:none"),
        (*inside, "fetch", "--quiet", "--depth=1", "--no-tags", "origin", converter.commit),
        (*inside, "cat-file", "blob", f"{converter.commit}:{converter.path}"),
    )
    output = b""
    for step in steps:
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"}
        try:
            done = subprocess.run(("git", *step), capture_output=True, env=environment, check=False)
        except OSError as error:
            raise Failed(Problem("git cannot be started", str(error.strerror).lower(), "git", INSTALL)) from None
        if done.returncode:
            what = f"the converter cannot be fetched from {converter.repository}"
            do = "repair the way there, or set weights.converter.repository to a mirror"
            wanted = f"{converter.path} at commit {converter.commit}"
            said = done.stderr.decode("utf-8", "replace")
            fatal = re.search(r"^(?:fatal|error): .*$", said, re.MULTILINE)
            raise Failed(Problem(what, _last(fatal[0] if fatal else said), wanted, do))
        output = done.stdout
    return output


def _run(job: Job, program: Path, made: Path, progress: Progress) -> None:
    converter, layout = job.converter, job.layout
    assert converter is not None
    assert layout is not None
    command = [
        *(converter.python, str(program), "--input-path", job.checkpoint, "--input-type", converter.input_type),
        *("--output", str(made), "--quant-method", "int4", "--cpuinfer-threads", str(converter.threads)),
        *("--threadpool-count", str(layout.pools)),
    ]
    progress.begin("converting", job.shards_bytes)
    with progress.watching(lambda: size_of(made)):
        done = download.run(command, folder=program.parent)
    print(done.stdout)
    if done.returncode or not made.is_dir():
        said = f"{done.stdout}\nexit {done.returncode}"
        known = next(((seen, do) for pattern, seen, do in KNOWN if re.search(pattern, said, re.MULTILINE)), None)
        seen, do = known or (_last(done.stdout) or f"exit {done.returncode}", "read `journalctl -u ktfleet-convert`")
        raise Failed(Problem("the conversion failed", seen, "converted weights", do))


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shown(lines[-1], 400) if lines else "nothing"


@contextmanager
def _clean_shared_memory() -> Iterator[None]:
    """Nothing of an earlier converter before, nothing of this one after it."""

    def clean() -> None:
        for path in SHARED_MEMORY.glob("kt_convert_*"):
            if path.owner() == getpass.getuser():
                shutil.rmtree(path, ignore_errors=True)

    clean()
    try:
        yield
    finally:
        clean()
