"""Why the server's environment cannot be installed, judged before anything is touched. (Room: plan/storage.py.)"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.places import STACK, STACK_CACHE
from ktfleet.plan.stack.wanted import in_use, installation, interpreter, lock_file, read
from ktfleet.problem import Problem, Refused

UNPACKED = 4 * 1024**3
"""Bytes in the service's home: sgl_kernel joins its payloads there at the first import. Its own figure."""

_NO_LOCK_LINE = re.compile(r"^[ \t]*(?:-[a-zA-Z]|--(?!hash=)|[^#\s]+[ \t]*@|[^#\n]*://)", re.MULTILINE)
"""An option or an address. Within one line: over the lines of a long lock it would take a second."""


def problems(state: HostState, config: Workstation) -> Iterator[Problem]:
    """A lock that cannot be read, or that says where packages come from."""
    if config.stack is None:
        return
    lock = lock_file(config.stack, interpreter(state))
    try:
        text = read(lock).decode("utf-8", "replace")
    except Refused as refused:
        yield from refused.problems
        return
    found = _NO_LOCK_LINE.search(text)
    if found:
        line = text[found.start() :].strip().splitlines()[0][:80]
        do = "make it with `uv pip compile --generate-hashes --no-emit-index-url`"
        yield Problem(f"the lock {lock} has more than packages and hashes", repr(line), "no option, no address", do)


def room(state: HostState, config: Workstation) -> dict[str, int]:
    """Path -> bytes that must be free there while the environment is still to come."""
    made = installation(state, config)
    if made is None or config.stack is None or in_use(made, state):
        return {}
    # What an interrupted run has fetched takes a part of it already.
    if state.folders.get(STACK_CACHE) is not None:
        return {}
    # The next upgrade is built beside this one.
    count = 1 if state.links.get(STACK) is not None else 2
    return {"/opt": count * config.stack.bytes, "/var": UNPACKED}
