"""Is a folder of weights complete, and made for this model and this number of pools?"""

from __future__ import annotations

import gc
from pathlib import Path

from ktfleet.problem import Problem
from ktfleet.weights import kt_tree, merged
from ktfleet.weights.contents import Contents
from ktfleet.weights.findings import AGAIN
from ktfleet.weights.layout import LAYER_FOLDER, Layout
from ktfleet.weights.manifest import compare


def converted(folder: Path, layout: Layout, *, deep: bool = False) -> tuple[Problem, ...]:
    """What is wrong with converted weights of either layout. Empty: they are complete.

    deep: read every byte too; see `manifest.compare`.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        return (_no_folder(folder, error),)
    in_tree = any(LAYER_FOLDER.fullmatch(name) for name in names)
    in_files = any(name.endswith(merged.SUFFIX) or name == merged.INDEX for name in names)
    if in_tree and in_files:
        seen = f"{merged.INDEX} or {merged.SUFFIX} files beside _layer_* folders"
        return (Problem("two layouts in one folder", seen, "one of them", "move the files of the other one away"),)
    # Hundreds of thousands of small objects, and no cycle: looking for cycles takes a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        contents = kt_tree.converted(folder, layout) if in_tree else merged.converted(folder, layout)
    finally:
        if collecting:
            gc.enable()
    return _with_manifest(folder, contents, deep)


def checkpoint(folder: Path, *, deep: bool = False) -> tuple[Problem, ...]:
    """What is wrong with a checkpoint as the hub has it: its index and every file of it."""
    try:
        contents, _ = merged.read(folder)
    except OSError as error:
        return (_no_folder(folder, error),)
    return _with_manifest(folder, contents, deep)


def _with_manifest(folder: Path, contents: Contents, deep: bool) -> tuple[Problem, ...]:
    """A folder that is broken anyway is not read whole."""
    if contents.problems:
        return contents.problems
    return compare(folder, contents, deep=deep)


def _no_folder(folder: Path, error: OSError) -> Problem:
    seen = (error.strerror or str(error)).lower()
    return Problem(f"{folder} cannot be read", seen, "a folder of weights", "check the path; " + AGAIN)
