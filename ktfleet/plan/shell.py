"""What shell commands of a change have in common."""

from __future__ import annotations

from shlex import quote


def make_folder(path: str) -> str:
    """Make a folder and those above it. Whatever umask root has there, the server's user can read what lies in it."""
    return f"(umask 022 && mkdir -p {quote(path)})"


def stop(what: str, variable: str | None = None, rest: str = "") -> str:
    """Say a line and fail. With a shell variable, its value is what was seen."""
    seen = f'{quote(f"{what}: seen ")}"${variable}"{quote(rest)}' if variable else quote(what)
    return f"printf '%s\\n' {seen} >&2; exit 1"
