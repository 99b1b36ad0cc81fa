"""Converted weights in the .kt layout: one file a tensor, whose name tells its size."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.weights.contents import Contents, File
from ktfleet.weights.findings import AGAIN, listed, per_layer
from ktfleet.weights.layout import FILE, LAYER_FOLDER, POOL_FOLDER, Layout
from ktfleet.weights.merged import pools_problem
from ktfleet.weights.safetensors import shown


def converted(folder: Path, layout: Layout) -> Contents:
    """Every file of every expert as the layout has it, by its name and size."""
    sizes, odd = _walk(folder)
    problems = [*odd]
    pools = {int(path.split("/")[1].removeprefix("_numa_")) for path in sizes}
    other = pools_problem(pools, layout)
    if other:
        return Contents((*problems, other))
    missing: dict[int, list[str]] = defaultdict(list)
    wrong: dict[int, list[str]] = defaultdict(list)
    files = {}
    for layer in range(layout.layers):
        for tensor, path in layout.filed(layer):
            size = sizes.pop(path, None)
            if size is None:
                missing[layer].append(path)
                continue
            if size != tensor.bytes:
                wrong[layer].append(f"{path} of {size} bytes")
            files[path] = File(size, ((0, size),) if tensor.kind == "scale" else ())
    each = layout.per_layer
    problems += per_layer(missing, each, "are missing", "files", f"{each} a layer")
    problems += per_layer(wrong, each, "have another size", "files", "the size in their names")
    if sizes:
        do = "compare the recipe's sizes with the model's; if they agree, convert again"
        problems.append(Problem("files that the model has not", f"{len(sizes)}: {listed(sizes)}", "none", do))
    return Contents(tuple(problems), files)


def _walk(folder: Path) -> tuple[dict[str, int], list[Problem]]:
    """Path -> size of every .kt file in its place, and what is odd about the tree."""
    sizes: dict[str, int] = {}
    links: list[str] = []
    unreadable: list[str] = []
    for path, entry in _files(folder, unreadable):
        if not entry.is_file(follow_symlinks=False):
            links.append(shown(path))
        elif FILE.fullmatch(entry.name):
            sizes[path] = entry.stat(follow_symlinks=False).st_size
        elif entry.name.endswith(".kt"):
            sizes[shown(path)] = entry.stat(follow_symlinks=False).st_size
    problems = []
    if links:
        problems.append(Problem("the tree holds no regular files", listed(links), "regular files", AGAIN))
    if unreadable:
        do = "repair that; see `ls -la` there"
        problems.append(Problem("folders cannot be read", listed(unreadable), "readable ones", do))
    return sizes, problems


def _files(folder: Path, unreadable: list[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    for layer in _folders(folder, "", LAYER_FOLDER.fullmatch, unreadable):
        for pool in _folders(folder, layer, POOL_FOLDER.fullmatch, unreadable):
            try:
                with os.scandir(folder / pool) as entries:
                    yield from ((f"{pool}/{entry.name}", entry) for entry in entries)
            except OSError as error:
                unreadable.append(f"{pool} ({(error.strerror or '').lower()})")


def _folders(folder: Path, below: str, matches: Callable[[str], object], unreadable: list[str]) -> list[str]:
    try:
        names = sorted(path.name for path in (folder / below).iterdir())
    except OSError as error:
        unreadable.append(f"{below or '.'} ({(error.strerror or '').lower()})")
        return []
    return [f"{below}/{name}" if below else name for name in names if matches(name)]
