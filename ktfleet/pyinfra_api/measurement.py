"""What every measurement of a host needs: place its program, run it, read its one line of JSON."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError
from pyinfra import host
from pyinfra.api import FactBase, FileUploadCommand, StringCommand
from pyinfra.api.exceptions import FactProcessError

from ktfleet.measure import bundle
from ktfleet.plan.places import MEASURE, MEASUREMENTS
from ktfleet.pyinfra_api.operations import Commands

Record = TypeVar("Record", bound=BaseModel)


def place(wanted: Mapping[str, bytes | Path]) -> Commands:
    """Upload the files that differ, each under a temporary name first."""
    there = host.get_fact(Digests, tuple(wanted)) or {}
    differing = {path: content for path, content in wanted.items() if there.get(path) != _digest(content)}
    if differing:
        yield StringCommand(f"mkdir -p {MEASURE}")
        for path, content in differing.items():
            source = BytesIO(content) if isinstance(content, bytes) else str(content)
            yield FileUploadCommand(source, f"{path}.new", remote_temp_filename=host.get_temp_filename(path))
        yield StringCommand(" && ".join(f"mv {path}.new {path}" for path in differing))


def place_measurements() -> Commands:
    """The programs of ktfleet/measure, in one file."""
    yield from place({MEASUREMENTS: bundle.zipped()})


def command(name: str, order: Any, limit_s: float) -> str:
    """The command that runs a measurement by its name; `order` is its Order."""
    given = shlex.quote(json.dumps(asdict(order)))
    return f"timeout -k 10 {limit_s:.0f} python3 -I {MEASUREMENTS} {name} {given}"


def _digest(content: bytes | Path) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.read_bytes()).hexdigest()


class Digests(FactBase[dict[str, str]]):
    """The sha256 of each file that is there, by path."""

    def command(self, paths: tuple[str, ...]) -> str:
        """Missing files are no error."""
        return f"sha256sum {' '.join(paths)} 2>/dev/null || true"

    def process(self, output: list[str]) -> dict[str, str]:
        """Lines of sha256sum(1)."""
        lines = (re.fullmatch(r"([0-9a-f]{64})  (/\S+)", line) for line in output)
        return {line[2]: line[1] for line in lines if line}


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
