"""The program on the host: `weights download|convert|verify`. Exit 0 done, 1 with each problem on a line, 2 usage.

deploy.py runs the first two as systemd units, as the service's user. They tell how far they are in
$RUNTIME_DIRECTORY/progress.json, and get the hub's token as systemd's credential "hub-token".
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.progress import Progress
from ktfleet.weights import convert, download, verify
from ktfleet.weights.folders import Failed, only_one
from ktfleet.weights.job import Job, load
from ktfleet.weights.safetensors import Broken

TOKEN = "hub-token"


def main(argv: Sequence[str] | None = None) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="weights", description="Get and verify this host's weights.")
    parser.add_argument("what", choices=("download", "convert", "verify"))
    parser.add_argument("--deep", action="store_true", help="verify: read every byte")
    parser.add_argument("job", type=Path, help="the file that deploy.py wrote")
    arguments = parser.parse_args(argv)
    problems = _work(arguments.what, arguments.job, arguments.deep)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _work(what: str, path: Path, deep: bool) -> tuple[Problem, ...]:
    try:
        job = load(path)
    except (Broken, OSError) as error:
        seen = error.seen if isinstance(error, Broken) else (error.strerror or str(error)).lower()
        return (Problem(f"the job {path} cannot be read", seen, "what deploy.py wrote", "run deploy.py again"),)
    if what == "verify":
        return _verify(job, deep)
    runtime = os.environ.get("RUNTIME_DIRECTORY")
    progress = Progress(Path(runtime) / "progress.json" if runtime else None)
    try:
        job.work.mkdir(exist_ok=True)
        with only_one(job.work, what):
            if what == "download":
                download.download(job, progress, _token())
            else:
                convert.convert(job, progress, Path(os.environ.get("STATE_DIRECTORY", ".")))
    except Failed as failed:
        problems = failed.problems
    except OSError as error:
        where, seen = error.filename or job.work, (error.strerror or str(error)).lower()
        do = "free some space or repair the disk (`dmesg`), then run deploy.py again: it goes on where it stopped"
        problems = (Problem(f"{where} cannot be written or read", seen, "a working disk with room", do),)
    else:
        problems = ()
    progress.end(problems)
    return problems


def _verify(job: Job, deep: bool) -> tuple[Problem, ...]:
    problems = verify.checkpoint(Path(job.checkpoint), deep=deep)
    if job.shards and job.layout:
        problems += verify.converted(Path(job.shards), job.layout, deep=deep)
    return problems


def _token() -> str | None:
    """What systemd hands over; nobody else can read it there. Raises OSError."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) / TOKEN if folder else None
    return path.read_text(encoding="utf-8").strip() or None if path and path.exists() else None
