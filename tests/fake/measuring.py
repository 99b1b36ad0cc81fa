"""A fake host that a measurement is placed on and run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from ktfleet.measure import bundle
from ktfleet.plan.places import MEASUREMENTS
from tests.fake.hosts import FakeHost, ScriptedConnector


@dataclass
class MeasuredHost(FakeHost):
    """Its measurement prints `measured` (None: nothing). `placed`: the current program lies there already."""

    measured: dict[str, Any] | str | None = None
    placed: bool = False
    uploads: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def answer(self, command: str) -> tuple[bool, list[str]]:
        if command.startswith("sha256sum"):
            digest = hashlib.sha256(bundle.zipped()).hexdigest()
            return True, ["Welcome", *([f"{digest}  {MEASUREMENTS}"] if self.placed else [])]
        if command.startswith("timeout"):
            self.ran.append(command)
            said = self.measured if isinstance(self.measured, str) else json.dumps(self.measured)
            return self.measured is not None, ["Welcome", said] if self.measured is not None else []
        if "$TMPDIR" in command:  # pyinfra asks once a process
            return True, ["/tmp"]
        return super().answer(command)


class Connector(ScriptedConnector):
    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **__: Any) -> bool:
        assert filename_or_io.read() == bundle.zipped()
        self.fake.uploads.append(remote_filename)
        return not any(part in remote_filename for part in self.fake.fails)
