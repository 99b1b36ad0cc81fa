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
    return wanted(detail["msg"])


def wanted(message: str) -> str:
    """pydantic's message as the "wanted" of the error grammar."""
    plain = message.removeprefix("Input should be ").replace("valid tuple", "valid list")
    return plain[0].lower() + plain[1:]


def _keys_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where the unknown one stands."""
    for name in location[:-1]:
        field = model.model_fields.get(str(name))
        inner = _model(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model of a field; also of one that may be None."""
    kinds = get_args(annotation) or (annotation,)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
