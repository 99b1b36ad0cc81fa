"""What a program on the host tells of its work, as deploy.py reads it while it waits. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import Literal

from ktfleet.problem import Problem
from ktfleet.weights.folders import gb

_UNITS = ("ActiveState", "Result", "ExecMainStatus")


@dataclass(frozen=True)
class Told:
    """One look. `line` for people; problems: why it failed."""

    state: Literal["running", "done", "failed"]
    line: str
    problems: tuple[str, ...] = ()


def command(unit: str) -> str:
    """A shell command that asks for both: what systemd knows, and what the program told."""
    told = f"/run/{unit.removesuffix('.service')}/progress.json"
    return f"systemctl show {quote(unit)} -p {','.join(_UNITS)}; cat {quote(told)} 2>/dev/null || true"


def parse(unit: str, lines: list[str]) -> Told | None:
    """The command's answer; None: it is none."""
    fields = dict(line.split("=", 1) for line in lines if line.startswith(_UNITS) and "=" in line)
    told = _progress(next((line for line in reversed(lines) if line.startswith("{")), "{}"))
    if "ActiveState" not in fields:
        return None
    # A service that has told its last word may go on: a server that is ready, or of no use.
    if told.get("state") == "done":
        return Told("done", _line(told))
    running = fields["ActiveState"] in ("active", "activating", "deactivating", "reloading")
    if running and told.get("state") != "failed":
        return Told("running", _line(told))
    said = told.get("problems") if told.get("state") == "failed" else None
    problems = [str(line) for line in said] if isinstance(said, list) else []
    if not problems:
        seen = f"{fields.get('Result')}, status {fields.get('ExecMainStatus')}"
        do = f"read `journalctl -u {unit}` there, then run deploy.py again"
        problems = [str(Problem(f"{unit} ended without a word", seen, "its last word", do))]
    return Told("failed", "", tuple(problems))


def _progress(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _line(told: dict[str, object]) -> str:
    """ "downloading the checkpoint: 63.1 of 159.6 GB (39 %), 812 MB/s, 2 min left"."""
    done, total, rate, left = (_number(told.get(key)) for key in ("done", "total", "rate", "left_s"))
    line = str(told.get("step") or "starting")
    if total:
        line += f": {gb(done or 0)} of {gb(total)} ({100 * (done or 0) // total} %)"
    elif done:
        line += f": {gb(done)} so far"
    if rate:
        line += f", {rate / 1e6:.1f} MB/s"
    if left is not None:
        line += f", {_time(left)} left"
    return line


def _number(value: object) -> int | None:
    return value if type(value) is int else None


def _time(seconds: int) -> str:
    if seconds < 100:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
