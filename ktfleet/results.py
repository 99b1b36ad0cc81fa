"""What runs found, as files under results/: one JSON a host, the latest run of each check."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args

from ktfleet.plan.worksheet import Answer, Item
from ktfleet.problem import Problem, Refused
from ktfleet.verdict import Result, Verdict

FOLDER = Path(os.environ.get("KTFLEET_RESULTS", "results"))
"""Below the current folder, or where KTFLEET_RESULTS says."""

FIGURES = 50
"""Values that are kept of each of a host's measured figures."""


@dataclass(frozen=True)
class HostResults:
    """One host's latest verdicts (check -> when, by which ktfleet commit, verdicts) and its worksheet."""

    host: str
    checks: dict[str, Check]
    worksheet: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Check:
    """One check's latest run. `taken` is UTC, ISO 8601; `commit` the git commit of ktfleet that judged; `holds_for`
    what the measurement holds for (see plan/circumstances.py), None where it is to be taken again anyway."""

    taken: str
    commit: str
    verdicts: tuple[Verdict, ...]
    holds_for: dict[str, str] | None = None


def store(
    host: str,
    check: str,
    verdicts: tuple[Verdict, ...],
    folder: Path | None = None,
    holds_for: Mapping[str, str] | None = None,
) -> None:
    """Write one check's verdicts, replacing that check's previous ones."""
    path = _path(host, folder)
    kept = _kept(path)
    checks = kept.setdefault("checks", {})
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    stored = {"taken": taken, "commit": _commit(), "verdicts": [asdict(verdict) for verdict in verdicts]}
    checks[check] = {**stored, "holds_for": dict(holds_for)} if holds_for is not None else stored
    _write(path, host, kept)


def store_worksheet(host: str, items: tuple[Item, ...], folder: Path | None = None) -> None:
    """Write what a person can change in the BIOS and on the board, replacing the previous list."""
    path = _path(host, folder)
    _write(path, host, {**_kept(path), "worksheet": [asdict(item) for item in items]})


def verdicts(host: str, folder: Path | None = None) -> dict[str, tuple[Verdict, ...]]:
    """One host's verdicts by check; none when there are no results of it, or they cannot be read."""
    return {name: check.verdicts for name, check in checks(host, folder).items()}


def checks(host: str, folder: Path | None = None) -> dict[str, Check]:
    """One host's checks by name; none when there are no results of it, or they cannot be read."""
    try:
        return _host(json.loads(_path(host, folder).read_text(encoding="utf-8"))).checks
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def store_figure(host: str, name: str, value: float, folder: Path | None = None) -> None:
    """Add a measured figure to the host's history of it, the oldest ones left out."""
    path = _path(host, folder)
    kept = _kept(path)
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    history = {**_history(kept), name: [*_history(kept).get(name, []), {"taken": taken, "value": value}][-FIGURES:]}
    _write(path, host, {**kept, "figures": history})


def figures(host: str, name: str, folder: Path | None = None) -> tuple[float, ...]:
    """The host's earlier figures of this name, oldest first."""
    found = _history(_kept(_path(host, folder))).get(name, [])
    return tuple(float(one["value"]) for one in found)


def _history(kept: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Name -> figures. What is not of this form is left out."""
    found = kept.get("figures")
    return {
        name: [one for one in known if isinstance(one, dict) and isinstance(one.get("value"), float)]
        for name, known in (found.items() if isinstance(found, dict) else ())
        if isinstance(known, list)
    }


def _path(host: str, folder: Path | None) -> Path:
    return (folder or FOLDER) / f"{host.replace('/', '_')}.json"


def _write(path: Path, host: str, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"checks": {}, **data, "host": host}, indent=1) + "\n", encoding="utf-8")
    temporary.rename(path)


def _kept(path: Path) -> dict[str, Any]:
    """What the file already holds. A broken file is replaced: it must not stop a deploy."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) and isinstance(data.get("checks"), dict) else {}


def load(folder: Path | None = None) -> Iterator[HostResults]:
    """All hosts' results, by name. Raises Refused when there are none or one cannot be read."""
    folder = folder or FOLDER
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise Refused((Problem("no results", f"no *.json in {folder}", "a finished run", "run deploy.py first"),))
    for path in paths:
        try:
            yield _host(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = Problem(
                str(path), f"{type(error).__name__}: {error}", "a results file", "delete it and run again"
            )
            raise Refused((problem,)) from error


def _host(data: dict[str, Any]) -> HostResults:
    checks = {
        name: Check(
            check["taken"],
            check["commit"],
            tuple(Verdict(**verdict) for verdict in check["verdicts"]),
            _texts(check["holds_for"]) if "holds_for" in check else None,
        )
        for name, check in data["checks"].items()
    }
    worksheet = tuple(Item(**item) for item in data.get("worksheet", []))
    judged = (text for check in checks.values() for verdict in check.verdicts for text in astuple(verdict))
    dated = (text for check in checks.values() for text in (check.taken, check.commit))
    advised = (text for item in worksheet for text in astuple(item))
    if not all(isinstance(text, str) for text in (data["host"], *judged, *dated, *advised)):
        raise TypeError("a value that is no text")
    if any(verdict.result not in get_args(Result) for check in checks.values() for verdict in check.verdicts):
        raise ValueError("an unknown verdict")
    if any(item.answer not in get_args(Answer) for item in worksheet):
        raise ValueError("an unknown answer")
    return HostResults(data["host"], checks, worksheet)


def _texts(known: Any) -> dict[str, str]:
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise TypeError("what a measurement holds for is no text")
    return known


@cache
def _commit() -> str:
    """This checkout's commit, with "+" when it has changes; "unknown" outside a checkout. Asked once a process."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
