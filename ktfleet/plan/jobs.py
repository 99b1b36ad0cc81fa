"""What runs on a host by itself, as a systemd unit that deploy.py starts and waits for: its program, its start."""

from __future__ import annotations

import base64
import gzip
from functools import cache

from ktfleet.host import bundle
from ktfleet.host.state import HostState
from ktfleet.plan.files import File
from ktfleet.plan.shell import make_folder


@cache
def program(path: str, main: str) -> File:
    """The program as it is placed; `main`: the module whose main() it calls."""
    return File(path, bundle.source(main), "0644")


def place_program(file: File, state: HostState) -> tuple[str, ...]:
    """Write it where it differs. Packed: one argument of a program may have 128 KiB."""
    if file.content is None or state.files.get(file.path) == file.sha256:
        return ()
    packed = base64.b64encode(gzip.compress(file.content.encode(), mtime=0)).decode()
    folder, _, name = file.path.rpartition("/")
    new = f"{folder}/.{name}.ktfleet-new"
    unpack = f"printf %s {packed} | base64 -d | gzip -d >{new}"
    return (f"{make_folder(folder)} && {unpack} && chmod {file.mode} {new} && sync {new} && mv -f {new} {file.path}",)


def at_work(unit: str, state: HostState) -> bool:
    """Whether it runs: then nobody starts it again."""
    found = state.units.get(unit)
    return found is not None and found.active


def start(unit: str) -> str:
    """Start it and do not wait. Forget how it ended before."""
    told = f"/run/{unit.removesuffix('.service')}/progress.json"
    return f"rm -f {told}; systemctl reset-failed -q {unit} 2>/dev/null; systemctl start --no-block {unit}"
