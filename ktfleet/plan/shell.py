"""What shell commands of a change have in common."""

from __future__ import annotations

from shlex import quote


def stop(what: str, variable: str | None = None, rest: str = "") -> str:
    """Say a line and fail. With a shell variable, its value is what was seen."""
    seen = f'{quote(f"{what}: seen ")}"${variable}"{quote(rest)}' if variable else quote(what)
    return f"printf '%s\\n' {seen} >&2; exit 1"
