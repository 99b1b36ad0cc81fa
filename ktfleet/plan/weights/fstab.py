"""fstab(5): what it mounts where, and our line."""

from __future__ import annotations

from ktfleet.config import Data

READ_LIMIT = 4096
"""Bytes that the probe reads of it."""


def _lines(text: str) -> list[list[str]]:
    rows = (line.split() for line in text.splitlines())
    return [row for row in rows if len(row) >= 2 and not row[0].startswith("#")]


def spec(text: str, mount: str) -> str | None:
    """What is mounted there by the last line for it; None: nothing."""
    found = [row[0] for row in _lines(text) if row[1].rstrip("/") == mount]
    return found[-1] if found else None


def mounts(text: str, data: Data) -> bool:
    """Whether the data disk is mounted where it is wanted, whatever the options."""
    found = spec(text, data.mount)
    return found is not None and found.replace('"', "") in (data.tag, data.device)


def line(data: Data) -> str:
    """nofail: a server without its data disk still boots, and can be asked what is wrong. Nobody waits these 5 min."""
    return f"{data.tag} {data.mount} auto defaults,nofail,noatime,x-systemd.device-timeout=5min 0 2"
