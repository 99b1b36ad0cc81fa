"""Has upstream changed under the overlay? Each function that it relies on is known by the hash of its syntax tree,
without docstrings and comments, read from the file: nothing is imported for it. Standard library alone.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ktfleet.problem import Problem

_LATER = frozenset({"type_params", "type_comment", "kind"})
"""Fields that one version of Python has and another has not."""

LENGTH = 16
"""Hex digits of a hash that are kept."""


@dataclass(frozen=True)
class Pin:
    """package and file: where it is. name: of a function, a class or Class.function. digest: of what we have read.
    vital: whether a change of it refuses the start; otherwise it is a warning. why: what depends on it.
    """

    package: str
    file: str
    name: str
    digest: str
    why: str
    vital: bool = True

    @property
    def place(self) -> str:
        return f"{self.package}/{self.file}: {self.name}"


def digest(source: str, name: str) -> str | None:
    """Of one function or class; None where there is no such thing. Raises SyntaxError."""
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        inside = [each for each in getattr(node, "body", ()) if getattr(each, "name", None) == part]
        if not inside:
            return None
        node = inside[-1]  # the last one of a name is the one that counts
    return hashlib.sha256(_canonical(node).encode()).hexdigest()[:LENGTH]


def _canonical(value: object) -> str:
    """The same text in every version of Python for the same code."""
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    parts = []
    for field, inner in ast.iter_fields(value):
        if field == "body" and isinstance(value, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = inner[1:] if ast.get_docstring(value, clean=False) is not None else inner
        if field not in _LATER and inner is not None and inner != []:
            parts.append(f"{field}={_canonical(inner)}")
    return f"{type(value).__name__}({','.join(parts)})"


def folders(packages: frozenset[str]) -> dict[str, Path]:
    """Where packages lie, without importing them."""
    found = {}
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            found[package] = Path(next(iter(spec.submodule_search_locations)))
    return found


def drift(pins: tuple[Pin, ...], where: Mapping[str, Path]) -> Iterator[tuple[Pin, Problem]]:
    """Each pin that does not hold."""
    for pin in pins:
        seen = _seen(pin, where)
        if seen != pin.digest:
            do = "serve with the lock that ktfleet ships, or read what changed and renew the pin"
            yield pin, Problem(f"{pin.place} ({pin.why})", seen, pin.digest, do)


def _seen(pin: Pin, where: Mapping[str, Path]) -> str:
    if pin.package not in where:
        return "no such package"
    try:
        return digest((where[pin.package] / pin.file).read_text(encoding="utf-8"), pin.name) or "no such name"
    except (OSError, ValueError, SyntaxError) as error:
        return f"a file that cannot be read ({(getattr(error, 'strerror', None) or type(error).__name__).lower()})"
