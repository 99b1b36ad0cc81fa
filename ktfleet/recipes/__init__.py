"""What is served: one TOML a recipe, found by name in this folder or by path. It may inherit another one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ktfleet.problem import Problem, Refused
from ktfleet.recipes.model import Recipe
from ktfleet.validation import read_toml, validated

__all__ = ["FOLDER", "GIB", "Recipe", "load", "names"]

FOLDER = Path(__file__).parent
GIB = 1024**3

OF_ONE_ALONE = ("inherits", "published", "accuracy")
"""Keys that no recipe inherits: what was measured with one is not known of another."""


def names() -> list[str]:
    """The packaged recipes."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name_or_path: str, override: Mapping[str, Any] | None = None, origin: str = "") -> Recipe:
    """Load a packaged recipe by name, or a recipe file by path (anything with a slash or .toml).

    override: keys that replace the recipe's own, tables merged; `origin` (a host's or a file's name) begins every
    line about them.
    Raises Refused for an unknown name (the nearest one is suggested), an unreadable file, a bad key.
    """
    path = _path(name_or_path)
    data = _inherited(path)
    recipe = validated(Recipe, data, str(path))
    return validated(Recipe, _merged(data, override), f"{origin}: override") if override else recipe


def _path(name_or_path: str, beside: Path = Path()) -> Path:
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        return beside / name_or_path
    if name_or_path in names():
        return FOLDER / f"{name_or_path}.toml"
    close = difflib.get_close_matches(name_or_path, names(), n=1)
    do = f"did you mean '{close[0]}'?" if close else "use one of these, or the path of a TOML file"
    raise Refused((Problem("recipe", f"'{name_or_path}'", f"one of {', '.join(names())}", do),))


def _inherited(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The file's own keys over those of the recipe that it inherits. A relative path begins at the file's folder."""
    own = read_toml(path)
    parent = own.get("inherits")
    if parent is None:
        return own
    what = f"{path}: inherits"
    if not isinstance(parent, str):
        raise Refused((Problem(what, repr(parent), "a recipe's name or path", "correct inherits"),))
    known = (*above, path.resolve())
    other = _path(parent, path.parent)
    if other.resolve() in known:
        raise Refused((Problem(what, f"'{parent}', which inherits this one", "no circle", "correct inherits"),))
    taken = {key: value for key, value in _inherited(other, known).items() if key not in OF_ONE_ALONE}
    return _merged(taken, own)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables key by key, everything else replaced."""
    found = dict(below)
    for key, value in above.items():
        mine = found.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            found[key] = _merged(mine, value)
        else:
            found[key] = value
    return found
