"""The program on the host: `server run JOB`, the unit's main process; `server check`, the job on its standard input.

`check` is asked while the old server still runs: exit 0, or 1 with each problem on a line. 2: usage, or no job.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.server import preflight
from ktfleet.server.job import Job, identity, parse
from ktfleet.server.supervise import STARTED, Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="server", description="Run this host's server.")
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("run").add_argument("job", type=Path, help="the file that deploy.py wrote")
    what.add_parser("check")
    arguments = parser.parse_args(argv)
    try:
        job = parse(arguments.job.read_text(encoding="utf-8") if arguments.what == "run" else sys.stdin.read())
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(Problem("the server's job cannot be read", str(error), "what deploy.py wrote", "run deploy.py again"))
        return 2
    if arguments.what == "check":
        found = tuple(preflight.problems(job))
        for problem in found:
            print(problem, file=sys.stderr)
        return 1 if found else 0
    return run(job, Path(os.environ.get("RUNTIME_DIRECTORY", ".")))


def run(job: Job, runtime: Path) -> int:
    """Serve. What an earlier server told is gone first: it is kept over its end, for whoever asks why."""
    for old in runtime.glob("*.json"):
        old.unlink()
    (runtime / STARTED).write_text(json.dumps(identity(job, _link(job.stack), _digest)), encoding="utf-8")
    return Supervisor(job, runtime).run()


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None


def _digest(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()
