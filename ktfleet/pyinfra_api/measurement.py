"""What every measurement of a host needs: place its program, run it, read its one line of JSON."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError
from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from ktfleet.measure import bundle
from ktfleet.plan.account import ACCOUNT
from ktfleet.plan.places import MEASUREMENTS
from ktfleet.pyinfra_api.operations import Commands
from ktfleet.pyinfra_api.upload import place

Record = TypeVar("Record", bound=BaseModel)


def place_measurements() -> Commands:
    """The programs of ktfleet/measure, in one file."""
    yield from place({MEASUREMENTS: bundle.zipped()})


def command(name: str, order: Any, limit_s: float, python: str = "") -> str:
    """The command that runs a measurement by its name; `order` is its Order.

    python: of the server's environment, whose packages then run as the service's user; "": the system's.
    """
    given = shlex.quote(json.dumps(asdict(order)))
    runs = f"sudo -H -u {ACCOUNT} {python}" if python else "python3"
    return f"timeout -k 10 {limit_s:.0f} {runs} -I {MEASUREMENTS} {name} {given}"


class Measured(FactBase[Any]):
    """Runs a measurement on the host and reads its JSON: base of one fact a measurement.

    record: the type of the JSON, whose schema must be `schema`. look: what to run there when it cannot be read.
    """

    record: ClassVar[type[BaseModel]]
    schema: ClassVar[int]
    look: ClassVar[str]

    def process(self, output: list[str]) -> BaseModel:
        """Find the JSON among whatever a shell profile printed."""
        line = next((line for line in reversed(output) if line.startswith("{")), None)
        do = f"see what `{self.look}` prints there"
        if line is None:
            raise FactProcessError(f"the measurement said nothing: seen {output[-1:]}, wanted one line of JSON; {do}")
        return parse(line, self.record, self.schema, do)


def parse(line: str, kind: type[Record], schema: int, do: str) -> Record:
    """A measurement's JSON as its record. Raises FactProcessError."""
    try:
        data = json.loads(line)
        version = data.get("schema") if isinstance(data, dict) else None
        record = kind.model_validate(data) if version == schema else None
    except (ValueError, ValidationError, RecursionError) as error:
        raise FactProcessError(
            f"the measurement's answer cannot be read: seen {line[:80]!r}, wanted its JSON; {do}"
        ) from error
    if record is None:
        raise FactProcessError(f"the measurement has another schema: seen {version}, wanted {schema}; {do}")
    return record
