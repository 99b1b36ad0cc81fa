"""Folders of safetensors files with an index: converted weights in the merged layout, and checkpoints of the hub."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.weights.contents import Contents, File
from ktfleet.weights.findings import AGAIN, listed, per_layer
from ktfleet.weights.layout import KEY, Layout
from ktfleet.weights.safetensors import Broken, Entry, read_header, read_json, shown

INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
NAME = re.compile(r"[^/\0\n.][^/\0\n]*\.safetensors")
"""A file of this folder, and no hidden one."""

UNFINISHED = "PLACEHOLDER"
"""The converter names its files so until it ends, and writes the index last."""

CRASHES = {True: "a segmentation fault", False: "wrong numbers (NaN)"}
"""What kt-kernel 0.7.2 answers to weights of fewer pools than it starts (True), or of more."""


def read(folder: Path) -> tuple[Contents, dict[str, Entry]]:
    """Every tensor of every file in the index, and what contradicts it. No data is read."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
    unfinished = [name for name in names if UNFINISHED in name]
    if unfinished:
        seen = f"{len(unfinished)} files named so, first {shown(unfinished[0])}"
        return Contents((Problem("the conversion was not finished", seen, f"no {UNFINISHED} in a name", AGAIN),)), {}
    try:
        index = _weight_map(folder)
    except FileNotFoundError:
        seen = f"{len(names)} {SUFFIX} files without it" if names else "neither it nor a file of weights"
        return Contents((Problem(f"{INDEX} is missing", seen, "the index, which is written last", AGAIN),)), {}
    except (Broken, OSError) as error:
        return Contents((_unreadable(INDEX, error),)), {}
    return _join(folder, names, index)


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor -> file. Raises Broken, OSError."""
    found = read_json(folder / INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise Broken("no weight_map", "one that names tensors and their files")
    for key, name in found.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Broken(f"{shown(key)} in {shown(repr(name))}", f"{SUFFIX} files of this folder")
    return found


def _unreadable(name: str, error: Broken | OSError) -> Problem:
    if isinstance(error, Broken):
        return Problem(f"{shown(name)} is broken", error.seen, error.wanted, AGAIN)
    seen = (error.strerror or str(error)).lower()
    return Problem(f"{shown(name)} cannot be read", seen, "a readable file", "repair that, or make it again")


def _join(folder: Path, names: list[str], index: Mapping[str, str]) -> tuple[Contents, dict[str, Entry]]:
    """The headers of all files, compared with the index."""
    problems: list[Problem] = []
    entries: dict[str, Entry] = {}
    files = {INDEX: File((folder / INDEX).stat().st_size)}
    indexed: dict[str, set[str]] = defaultdict(set)
    for key, name in index.items():
        indexed[name].add(key)
    absent = sorted(set(indexed) - set(names))
    if absent:
        problems.append(Problem("files of the index are missing", listed(map(shown, absent)), "all of them", AGAIN))
    extra = sorted(set(names) - set(indexed))
    if extra:
        do = "remove them if they are not yours to keep, else make the index again"
        problems.append(Problem("files are not in the index", listed(map(shown, extra)), "only files of the index", do))
    for name in sorted(set(indexed) & set(names)):
        try:
            header = read_header(folder / name)
        except (Broken, OSError) as error:
            problems.append(_unreadable(name, error))
            continue
        problems += _compared(name, indexed[name], header, entries)
        entries |= header
        scales = tuple((e.begin, e.end) for k, e in header.items() if e.dtype == "F32" and k.endswith(".scale"))
        files[name] = File((folder / name).stat().st_size, scales)
    return Contents(tuple(problems), files), entries


def _compared(name: str, indexed: set[str], header: Mapping[str, Entry], others: Mapping[str, Entry]) -> list[Problem]:
    """One file's tensors against the index, and against those of other files."""
    problems = []
    twice = header.keys() & others.keys()
    if twice:
        what = f"{len(twice)} tensors of {shown(name)} are in another file too"
        problems.append(Problem(what, listed(map(shown, twice)), "each tensor once", AGAIN))
    lacking, unnamed = indexed - header.keys(), header.keys() - indexed - twice
    for keys, how, wanted in (
        (lacking, "lacks tensors of the index", "all that the index names there"),
        (unnamed, "has tensors that the index does not place there", "only what the index names there"),
    ):
        if keys:
            what = f"{shown(name)} {how}"
            problems.append(Problem(what, f"{len(keys)}: {listed(map(shown, keys))}", wanted, AGAIN))
    return problems


def converted(folder: Path, layout: Layout) -> Contents:
    """Converted weights: the files, and every expert's tensors as the layout has them."""
    contents, entries = read(folder)
    # What the unreadable files hold is not known to be missing.
    broken = any(" is broken" in p.what or " cannot be read" in p.what for p in contents.problems)
    found = () if not entries else tuple(_experts(entries, layout, whole=not broken))
    return Contents((*contents.problems, *found), contents.files)


def pools_problem(pools: set[int], layout: Layout) -> Problem | None:
    """Weights that were made for another number of pools: nothing else has to be compared then."""
    wanted = set(range(layout.pools))
    if not pools or pools == wanted or pools != set(range(len(pools))):
        return None
    crash = CRASHES[len(pools) < layout.pools]
    do = f"convert with --threadpool-count {layout.pools}; started like this, kt-kernel answers with {crash}"
    return Problem("made for another number of pools", str(len(pools)), str(layout.pools), do)


def _experts(entries: Mapping[str, Entry], layout: Layout, *, whole: bool) -> Iterator[Problem]:
    """The experts' tensors against the layout. `whole`: every file was read."""
    there = {key for key in entries if KEY.fullmatch(key)}
    if not there:
        yield Problem("no converted experts", f"{len(entries)} other tensors", f"{layout.count} of experts", AGAIN)
        return
    other = pools_problem({int(key.split(".numa.")[1].split(".")[0]) for key in there}, layout)
    if other:
        yield other
        return
    missing: dict[int, list[str]] = defaultdict(list)
    wrong: dict[int, list[str]] = defaultdict(list)
    for layer in range(layout.layers):
        for tensor, key in layout.named(layer):
            entry = entries.get(key)
            if entry is None:
                missing[layer].append(key)
                continue
            there.discard(key)
            if entry.dtype != tensor.dtype or entry.shape != tensor.shape:
                seen = f"{key} {entry.dtype} {list(entry.shape)} instead of {tensor.dtype} {list(tensor.shape)}"
                wrong[layer].append(seen)
    each = layout.per_layer
    if whole:
        yield from per_layer(missing, each, "are missing", "tensors", f"{each} a layer")
    yield from per_layer(wrong, each, "have another type or shape", "tensors", "those of the model's sizes")
    yield from _unexpected(there)


def _unexpected(keys: Iterable[str]) -> Iterator[Problem]:
    names = list(keys)
    if names:
        do = "compare the recipe's sizes with the model's; if they agree, convert again"
        yield Problem("tensors that the model has not", f"{len(names)}: {listed(names)}", "none", do)
