"""The record of what was proven: every file with its size and, once its bytes were read, its sha256."""

from __future__ import annotations

import array
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktfleet.problem import Problem
from ktfleet.weights.contents import Contents, File
from ktfleet.weights.findings import AGAIN, listed
from ktfleet.weights.safetensors import Broken, open_regular, read_json, shown

NAME = ".ktfleet.json"
"""In the folder of the weights. A hub's or a converter's file is never named so."""

BLOCK = 1 << 22
"""Bytes read at once."""

READERS = 8
"""Files read side by side: one CPU hashes about 0.5 GB/s without SHA instructions, a disk reads more."""


@dataclass(frozen=True)
class Read:
    """What reading one file's bytes found: its sha256, and how many of its scales are no finite numbers."""

    sha256: str
    not_finite: int


def write(folder: Path, contents: Mapping[str, File], hashes: Mapping[str, str], about: Mapping[str, Any]) -> None:
    """Replace the folder's manifest. `about` says what the weights are. Raises OSError."""
    files = {
        name: {"size": file.size, **({"sha256": hashes[name]} if name in hashes else {})}
        for name, file in sorted(contents.items())
    }
    text = json.dumps({"schema": 1, **about, "files": files}, indent=1) + "\n"
    new = folder / f"{NAME}.new"
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / NAME)


def read(folder: Path) -> dict[str, Any]:
    """The manifest; {} when there is none. Raises Broken, OSError."""
    try:
        found = read_json(folder / NAME)
    except FileNotFoundError:
        return {}
    files = found.get("files")
    if not isinstance(files, dict) or not all(_is_file(name, held) for name, held in files.items()):
        raise Broken("files that it does not describe", "each file of this folder with its size")
    return found


def _is_file(name: str, held: Any) -> bool:
    parts = name.split("/")
    if not isinstance(held, dict) or type(held.get("size")) is not int or ".." in parts or "" in parts:
        return False
    return isinstance(held.get("sha256", ""), str)


def compare(folder: Path, contents: Contents, *, deep: bool) -> tuple[Problem, ...]:
    """The files against the manifest: their sizes, and with `deep` their bytes, each read once.

    With `deep`, scales that are NaN or infinite are a problem too, and a folder without one gets hashes into its
    manifest.
    """
    try:
        known = read(folder)
    except (Broken, OSError) as error:
        seen = error.seen if isinstance(error, Broken) else (error.strerror or str(error)).lower()
        do = f"remove {NAME} there: --deep writes another one"
        return (Problem(f"the manifest {NAME} cannot be read", seen, "what --deep wrote", do),)
    files = known.get("files", {})
    resized = [name for name, file in contents.files.items() if name in files and files[name]["size"] != file.size]
    gone = [name for name in files if not (folder / name).is_file()]
    problems = [
        *_problem("files have another size than when they were proven", resized),
        *_problem("files that were proven are gone", gone),
    ]
    if deep and not problems:
        problems += _deep(folder, contents, known)
    return tuple(problems)


def _deep(folder: Path, contents: Contents, known: dict[str, Any]) -> list[Problem]:
    listed_files = known.get("files", {})
    sizes = {name: File(int(held["size"])) for name, held in listed_files.items()}
    every = {**sizes, **contents.files}
    try:
        seen = hashes(folder, every)
    except (Broken, OSError) as error:
        what = error.seen if isinstance(error, Broken) else f"{error.filename}: {(error.strerror or '').lower()}"
        return [Problem("a file cannot be read whole", what, "all its bytes", "look for disk errors with `dmesg`")]
    proven = {name: held["sha256"] for name, held in listed_files.items() if "sha256" in held}
    changed = [name for name, sha256 in proven.items() if seen[name].sha256 != sha256]
    broken = [f"{name} ({found.not_finite})" for name, found in seen.items() if found.not_finite]
    problems = [
        *_problem("files have other bytes than when they were proven", changed),
        *_problem("files have scales that are NaN or infinite", broken),
    ]
    if not problems and proven.keys() != every.keys():
        try:
            about = {key: value for key, value in known.items() if key not in ("schema", "files")}
            write(folder, every, {name: found.sha256 for name, found in seen.items()}, about)
        except OSError as error:
            do = "run this as the folder's owner"
            problems.append(Problem(f"{NAME} cannot be written", (error.strerror or "").lower(), "the manifest", do))
    return problems


def _problem(what: str, names: list[str]) -> list[Problem]:
    return [Problem(what, f"{len(names)}: {listed(map(shown, names))}", "none", AGAIN)] if names else []


def hashes(folder: Path, files: Mapping[str, File]) -> dict[str, Read]:
    """Read every byte of these files once. Raises Broken, OSError."""
    workers = min(READERS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda name: read_bytes(folder / name, files[name]), files)
        return dict(zip(files, found, strict=True))


def read_bytes(path: Path, file: File) -> Read:
    """One file's digest and broken scales. Raises Broken, OSError."""
    digest, not_finite, at = hashlib.sha256(), 0, 0
    scales = sorted(file.scales)
    kept = bytearray()
    with open_regular(path) as data:
        while block := data.read(BLOCK):
            digest.update(block)
            while scales and scales[0][0] < at + len(block):
                begin, end = scales[0]
                kept += block[max(begin - at, 0) : end - at]
                if end > at + len(block):
                    break
                scales.pop(0)
                not_finite += _not_finite(bytes(kept))
                kept.clear()
            at += len(block)
    return Read(digest.hexdigest(), not_finite)


def _not_finite(data: bytes) -> int:
    """How many of these little-endian float32 are NaN or infinite."""
    values = array.array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    # A sum of float32 in double cannot overflow: it is finite when all of them are. Counting would take long.
    return 0 if math.isfinite(sum(values)) else sum(not math.isfinite(value) for value in values)
