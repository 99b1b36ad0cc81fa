"""Validation of what people write: every error at once, each a line that names its place."""

from __future__ import annotations

import difflib
import re
import reprlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from ktfleet.problem import Problem, Refused

Model = TypeVar("Model", bound=BaseModel)

FALSE_IS_NONE = BeforeValidator(lambda value: None if value is False else value)
"""For a key that None switches off: TOML has no null."""


class Strict(BaseModel):
    """Immutable; an unknown key or a value of another type is an error, never a guess."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that a user named. Raises Refused when it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise Refused((Problem(str(path), reason, "a readable TOML file", "check the path and its text"),)) from error


def validated(model: type[Model], data: Mapping[str, Any], origin: str) -> Model:
    """Validate `data` as `model`, every error as a problem that names origin and key. Raises Refused."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        problems = (_problem(model, origin, detail) for detail in error.errors())
        raise Refused(tuple(dict.fromkeys(problems))) from error


def _problem(model: type[BaseModel], origin: str, detail: ErrorDetails) -> Problem:
    key = ".".join(map(str, detail["loc"]))
    what = f"{origin}: {key}"
    if detail["type"] == "extra_forbidden":
        known = _keys_beside(model, detail["loc"])
        close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
        do = f"did you mean '{close[0]}'?" if close else "remove it"
        return Problem(what, "an unknown key", f"one of {', '.join(known)}", do)
    if detail["type"] == "missing":
        return Problem(what, "nothing", "a value", f"add {key}")
    return Problem(what, reprlib.repr(detail["input"]), _wanted(detail), _nearest_choice(detail) or f"correct {key}")


def _nearest_choice(detail: ErrorDetails) -> str | None:
    if detail["type"] != "literal_error":
        return None
    choices = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
    close = difflib.get_close_matches(str(detail["input"]), choices, n=1)
    return f"did you mean '{close[0]}'?" if close else None


def _wanted(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    if detail["type"] == "union_tag_invalid":
        return f"a kind of {detail['ctx']['expected_tags']}"
    if detail["type"] == "union_tag_not_found":
        return "a kind, as ktfleet/sources.py names them"
    return wanted(detail["msg"])


def wanted(message: str) -> str:
    """pydantic's message as the "wanted" of the error grammar."""
    plain = message.removeprefix("Input should be ").replace("valid tuple", "valid list")
    return plain[0].lower() + plain[1:]


def _keys_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where the unknown one stands."""
    models = [model]
    for name in location[:-1]:
        # Where a key's model depends on its `kind`, that stands in the location too.
        tagged = [kind for kind in models if name in _tags(kind)]
        fields = [kind.model_fields[str(name)] for kind in models if str(name) in kind.model_fields]
        models = tagged or [kind for field in fields for kind in _models(field.annotation)]
    return list(models[0].model_fields) if models else []


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models of a field; also of one that may be None."""
    kinds = get_args(annotation) or (annotation,)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
