"""The server's API key, which lives on the controller. It is in no plan, state, result or message."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

from ktfleet.config import Key
from ktfleet.problem import Problem, Refused

GOOD = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")
"""A bearer token (RFC 6750) that nobody guesses."""

LIMIT_S = 60


def read(key: Key) -> str:
    """The key. Raises Refused."""
    text = _of_file(Path(key.file)) if key.file is not None else _of_command(key.command or ())
    if not GOOD.fullmatch(text.strip()):
        seen = f"{len(text.strip())} characters"
        wanted = "16 to 512 letters, digits and -._~+/="
        raise _refused("the API key cannot be used", seen, wanted, "make one: `openssl rand -hex 32`")
    return text.strip()


def _of_file(path: Path) -> str:
    path = path.expanduser()
    do = f"write the key there, then `chmod 600 {path}`"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise _refused(f"the key's file {path} is readable by others", f"mode {mode:04o}", "0600", do)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        seen = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "no text"
        raise _refused(f"the key's file {path}", seen, "a readable file", do) from error


def _of_command(command: tuple[str, ...]) -> str:
    """What it says on its standard error stays between it and the person at the terminal."""
    do = "run it by hand, correct server.key.command"
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise _refused(f"the key's command {command[0]}", f"no end after {LIMIT_S} s", "the key", do) from None
    except OSError as error:
        seen = (error.strerror or str(error)).lower()
        raise _refused(f"the key's command {command[0]}", seen, "a program", do) from error
    if done.returncode:
        raise _refused(f"the key's command {command[0]}", f"exit status {done.returncode}", "the key", do)
    return done.stdout.decode("utf-8", "replace")


def _refused(what: str, seen: str, wanted: str, do: str) -> Refused:
    return Refused((Problem(what, seen, wanted, do),))
