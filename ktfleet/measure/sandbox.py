"""Run a program that nobody has read: own user, no network, nothing to write, little time and memory.

bubblewrap does it: one small program in every Debian and Ubuntu, that needs neither root nor systemd, so the same
sandbox works on a host and on a controller. There is no way without it: then nothing is run. Only the standard library:
it runs on the host.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

USER = 65533
"""Nobody's number: Debian reserves it, and gives it to no one. nobody itself (65534) may own processes."""
WALL_S, CHECK_S, CPU_S = 20.0, 60.0, 10
"""Seconds: of a program, of the trial of the sandbox (a busy machine is slow to start it), of computing."""
MEMORY = 1 << 29
OUTPUT = 1 << 22
"""Bytes that it may write to what it was given: its output is a file."""
PROCESSES = 6
FILES = 32
PYTHON = "/python"
"""In the sandbox: a Python that does not lie in /usr."""

_CHECK = """
import json, os, socket
def refused(action):
    try:
        action()
    except OSError:
        return True
    return False
def reach():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))
places = ["/", "/tmp", "/usr", "/dev", "/dev/shm", "/etc", "/proc/sys/kernel/hostname"]
def write(place):
    return os.open(place if place.startswith("/proc/") else place + "/x", os.O_WRONLY | os.O_CREAT)
print(json.dumps({
    "uid": os.getuid(), "root": not refused(lambda: os.setuid(0)), "network": not refused(reach),
    "writable": [place for place in places if not refused(lambda: write(place))],
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "foreign": [name for name in os.listdir("/") if name not in SEEN],
}))
"""
_SEEN = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "proc", "dev", "etc", "tmp", "python")


class NoSandbox(Exception):
    """Why nothing can be run; the text says what helps."""


@dataclass(frozen=True)
class Outcome:
    """What became of one program. `ended`: "exit", "signal" (its number in `code`) or "timeout"."""

    ended: str
    code: int
    output: bytes
    errors: bytes


def run(source: str, given: bytes, wall_s: float = WALL_S) -> Outcome:
    """Run Python source with the given standard input. Raises NoSandbox when bubblewrap is not there."""
    program = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    if program is None:
        raise NoSandbox("bubblewrap is not installed: install the package bubblewrap")
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        stdin.write(given)
        stdin.seek(0)
        process = subprocess.Popen(
            [program, *_options(), "--", *_inside(source)],
            stdin=stdin, stdout=out, stderr=errors, env={}, cwd="/", start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(wall_s)
            ended = "exit" if 0 <= code < 128 else "signal"
        except subprocess.TimeoutExpired:
            # bubblewrap is the first process of the sandbox's PID namespace's parent: all end with it.
            os.killpg(process.pid, signal.SIGKILL)
            code, ended = process.wait(), "timeout"
        for file in (out, errors):
            file.seek(0)
        return Outcome(ended, code - 128 if code > 128 else code, out.read(OUTPUT), errors.read(4096))


def _options() -> list[str]:
    """Of bubblewrap: new namespaces of every kind, a file system of read-only pieces, an empty environment."""
    # As root a user namespace is left out: then the user inside is really another one.
    space = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() != 0:
        space += ["--unshare-user", "--uid", str(USER), "--gid", str(USER)]
    else:
        space += [
            "--cap-drop",
            "ALL",
            *(f for cap in ("SETUID", "SETGID", "SETPCAP") for f in ("--cap-add", f"CAP_{cap}")),
        ]
    pieces = ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            pieces += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            pieces += ["--ro-bind", str(path), str(path)]
    if _home() != Path("/usr"):
        # One that was built with a shared library looks for it where it was built.
        pieces += ["--ro-bind", str(_home()), PYTHON, "--setenv", "LD_LIBRARY_PATH", f"{PYTHON}/lib"]
    return [
        *space, "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin",
        "--setenv", "LC_ALL", "C.UTF-8", *pieces, "--dir", "/tmp", "--proc", "/proc", "--dev", "/dev",
        "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/",
    ]  # fmt: skip


def _inside(source: str) -> list[str]:
    """What bubblewrap starts: limits first, then another user, then Python by itself."""
    limits = [f"--as={MEMORY}", f"--cpu={CPU_S}", f"--nproc={PROCESSES}", f"--nofile={FILES}", f"--fsize={OUTPUT}",
              "--core=0"]  # fmt: skip
    user = ["setpriv", "--no-new-privs"]
    if os.geteuid() == 0:
        user += [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    program = Path(sys.executable).resolve()
    python = str(program if _home() == Path("/usr") else Path(PYTHON, program.relative_to(_home())))
    return ["prlimit", *limits, "--", *user, "--", python, "-I", "-B", "-c", source]


def _home() -> Path:
    """Where this Python lies: /usr, or a folder of its own, which the sandbox then has as PYTHON."""
    return Path(sys.base_prefix).resolve()


def check() -> None:
    """Try the sandbox before anything hostile is. Raises NoSandbox when it does not hold."""
    done = run(_CHECK.replace("SEEN", repr(_SEEN)), b"", CHECK_S)
    try:
        seen: dict[str, Any] = json.loads(done.output)
    except ValueError:
        said = done.errors.decode("utf-8", "replace").strip().splitlines()
        why = said[-1][:200] if said else f"it ended with {done.ended} {done.code}"
        do = "allow unprivileged user namespaces, or run this as root" if os.geteuid() else "see what bwrap says"
        raise NoSandbox(f"bubblewrap does not work here: {why}; {do}") from None
    leaks = [name for name in ("root", "network", "writable", "foreign") if seen[name]]
    if seen["uid"] != USER or seen["processes"] > 3 or leaks:
        raise NoSandbox(f"the sandbox does not hold: it shows {json.dumps(seen)}")
