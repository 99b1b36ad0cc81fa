"""What the server's environment of a host is to be, from its configuration and its Python."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from ktfleet import locks
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.places import (
    STACK,
    STACK_CACHE,
    STACK_LOCK,
    STACK_PYTHONS,
    STACK_UV,
    STACKS,
    SYSTEM_PYTHON,
)
from ktfleet.problem import Problem, Refused
from ktfleet.sources import Stack
from ktfleet.stack.job import Job

MANAGED = "3.12"
"""What uv gets where the system has no Python that a lock is for."""

_NAME_LENGTH = 12


@dataclass(frozen=True)
class Installation:
    """What the host's program is told, and the lock on the controller."""

    job: Job
    lock: Path


def installation(state: HostState, config: Workstation) -> Installation | None:
    """What is to be installed. None when nothing is wanted, or when it cannot be told (see refusals)."""
    wanted = config.stack
    if wanted is None:
        return None
    python = interpreter(state)
    lock = lock_file(wanted, python)
    try:
        digest = hashlib.sha256(read(lock)).hexdigest()
    except Refused:
        return None
    job = Job(
        folder=_folder(digest, python),
        current=STACK,
        lock=STACK_LOCK,
        lock_sha256=digest,
        uv=STACK_UV,
        cache=STACK_CACHE,
        pythons=STACK_PYTHONS,
        python=python,
        index=wanted.index,
        wheels=wanted.wheels,
        python_mirror=wanted.python_mirror,
    )
    return Installation(job, lock)


def interpreter(state: HostState) -> str:
    """The path of the system's Python where a lock is for it, else the version that uv gets."""
    link = state.links.get(SYSTEM_PYTHON)
    fitting = [path for path in _SYSTEM if link and PurePosixPath(path).name == PurePosixPath(link).name]
    return fitting[0] if fitting else MANAGED


_SYSTEM = tuple(f"/usr/bin/python{version}" for version in locks.PYTHONS)
"""Debian's and Ubuntu's python3 is a link to one that tells its version."""


def lock_file(wanted: Stack, python: str) -> Path:
    """Where the controller has it. `python` as `interpreter` tells it."""
    if wanted.lock is not None:
        return Path(wanted.lock)
    return locks.path(PurePosixPath(python).name.removeprefix("python"))


@cache
def read(lock: Path) -> bytes:
    """The lock, the same one for the whole run. Raises Refused."""
    try:
        return lock.read_bytes()
    except OSError as error:
        seen = (error.strerror or str(error)).lower()
        raise Refused((Problem(f"the lock {lock}", seen, "a readable file", "correct stack.lock"),)) from error


def folders(config: Workstation) -> tuple[str, ...]:
    """Every environment that this configuration may mean, whichever Python the host has: for the probe."""
    wanted = config.stack
    if wanted is None:
        return ()
    found = []
    for python in (*_SYSTEM, MANAGED):
        try:
            digest = hashlib.sha256(read(lock_file(wanted, python))).hexdigest()
        except Refused:
            continue
        found.append(_folder(digest, python))
    return tuple(found)


def _folder(lock_sha256: str, python: str) -> str:
    """Its name stands for lock and interpreter: another Python is another environment."""
    name = hashlib.sha256(f"{lock_sha256} {python}".encode()).hexdigest()[:_NAME_LENGTH]
    return f"{STACKS}/{name}"


def built(made: Installation, state: HostState) -> bool:
    """Whether it is complete on the host."""
    return state.texts.get(made.job.complete) == made.job.name


def in_use(made: Installation, state: HostState) -> bool:
    """Whether it is complete, was proven, and is what the server starts from."""
    return built(made, state) and state.links.get(STACK) == made.job.folder
