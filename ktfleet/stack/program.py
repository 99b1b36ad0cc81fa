"""The program on the host: `stack JOB`. Exit 0 done, 1 with the problem on a line, 2 usage.

deploy.py runs it as a systemd unit, as root: the service's user is not to change its own code. It tells how far it is
in $RUNTIME_DIRECTORY/progress.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.progress import Progress
from ktfleet.stack.install import Failed, install
from ktfleet.stack.job import load


def main(argv: Sequence[str] | None = None) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="stack", description="Install the server's environment.")
    parser.add_argument("job", type=Path, help="the file that deploy.py wrote")
    problem = _work(parser.parse_args(argv).job)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


def _work(path: Path) -> Problem | None:
    try:
        job = load(path)
    except (OSError, ValueError, TypeError) as error:
        return Problem(f"the job {path} cannot be read", str(error), "what deploy.py wrote", "run deploy.py again")
    runtime = os.environ.get("RUNTIME_DIRECTORY")
    progress = Progress(Path(runtime) / "progress.json" if runtime else None)
    problem = None
    try:
        install(job, progress)
    except Failed as failed:
        problem = failed.problem
    except OSError as error:
        where, seen = error.filename or job.folder, (error.strerror or str(error)).lower()
        do = "free some space or repair the disk (`dmesg`), then run deploy.py again"
        problem = Problem(f"{where} cannot be written or read", seen, "a working disk with room", do)
    progress.end((problem,) if problem else ())
    return problem
