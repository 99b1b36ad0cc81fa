"""The server's command line, checked against every option of the real parser of the pinned version.

The catalogue (sglang_kt_flags.json) is what scripts/catalogue prints in an environment with the locked stack.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ktfleet.problem import Problem

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...] | Mapping[str, Scalar]
"""A flag's value: true for a flag without one, a tuple for several, a mapping for JSON."""

_PATH = Path(__file__).with_name("sglang_kt_flags.json")
_NUMBERS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float)}
_JSON = "loads"


@dataclass(frozen=True)
class Option:
    """One option of the parser. flags: all its spellings; action: "store", "true", or a class of sglang's own."""

    flags: tuple[str, ...]
    action: str
    type: str | None
    nargs: str | None
    choices: tuple[Scalar, ...] | None
    required: bool

    @property
    def name(self) -> str:
        """Its first spelling, without the dashes."""
        return self.flags[0].removeprefix("--")


@dataclass(frozen=True)
class Catalogue:
    """All options of one version, by each of their spellings without the dashes."""

    package: str
    version: str
    options: Mapping[str, Option]

    def problems(self, flags: Mapping[str, Value], origin: str) -> tuple[Problem, ...]:
        """What the parser would refuse, or take for something else. `origin` begins every line."""
        found = [problem for name, value in flags.items() for problem in self._problem(name, value, origin)]
        given = {self.options[name].name for name in flags if name in self.options}
        missing = sorted(
            {option.name for option in self.options.values() if option.required and option.name not in given}
        )
        found += [Problem(f"{origin}: --{name}", "nothing", "a value", "set it") for name in missing]
        return tuple(found)

    def _problem(self, name: str, value: Value, origin: str) -> tuple[Problem, ...]:
        what = f"{origin}: --{name}"
        option = self.options.get(name)
        if option is None:
            close = difflib.get_close_matches(name, self.options, n=1)
            do = f"did you mean '{close[0]}'?" if close else "remove it"
            return (Problem(what, "an unknown flag", f"one of {self.package} {self.version}", do),)
        if option.action not in ("store", "true"):
            what_it_is = f"{self.package}'s own {option.action}"
            return (Problem(what, what_it_is, "a flag with a plain value", "remove it"),)
        wanted = _wanted(option, value)
        return (Problem(what, _shown(value), wanted, "correct it"),) if wanted else ()

    def argv(self, flags: Mapping[str, Value]) -> tuple[str, ...]:
        """The flags as words of a command line. False and an empty tuple mean: not given."""
        return tuple(word for name, value in flags.items() for word in _words(name, value))


@cache
def catalogue() -> Catalogue:
    """The pinned version's."""
    data = json.loads(_PATH.read_text(encoding="utf-8"))
    options: dict[str, Option] = {}
    for each in data["options"]:
        choices = None if each["choices"] is None else tuple(each["choices"])
        option = Option(
            tuple(each["flags"]), each["action"], each["type"], each["nargs"], choices, bool(each["required"])
        )
        options.update({flag.removeprefix("--"): option for flag in option.flags})
    return Catalogue(data["package"], data["version"], options)


def _wanted(option: Option, value: Value) -> str | None:
    """What the option takes, if the value is none of it."""
    if option.action == "true":
        return None if isinstance(value, bool) else "true or false: it takes no value"
    if option.type == _JSON:
        return None if isinstance(value, Mapping) else "a table"
    several = option.nargs in ("+", "*")
    items = value if isinstance(value, tuple) else (value,)
    fits = (
        isinstance(value, tuple) == several
        and (bool(items) or option.nargs == "*")
        and all(not isinstance(item, Mapping) and _fits(option, item) for item in items)
    )
    return None if fits else _named(option, several)


def _fits(option: Option, item: Scalar) -> bool:
    kinds = _NUMBERS.get(option.type or "str", (str,))
    if isinstance(item, bool) or not isinstance(item, kinds) or "\0" in str(item) or "\n" in str(item):
        return False
    if isinstance(item, float) and not math.isfinite(item):
        return False
    return option.choices is None or item in option.choices


def _named(option: Option, several: bool) -> str:
    if option.choices is not None:
        return f"{'some' if several else 'one'} of {', '.join(map(str, option.choices))}"
    one, many = {"int": ("an integer", "integers"), "float": ("a number", "numbers")}.get(
        option.type or "str", ("a text", "texts")
    )
    return f"a list of {many}" if several else one


def _shown(value: Value) -> str:
    return json.dumps(value) if isinstance(value, Mapping | tuple) else repr(value)


def _words(name: str, value: Value) -> tuple[str, ...]:
    if isinstance(value, bool) or value == ():
        return (f"--{name}",) if value else ()
    if isinstance(value, Mapping):
        return (f"--{name}", json.dumps(value))
    texts = tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
    # A value that begins with a dash would be taken for the next flag.
    if len(texts) == 1 and texts[0].startswith("-"):
        return (f"--{name}={texts[0]}",)
    return (f"--{name}", *texts)
