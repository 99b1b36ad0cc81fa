"""The host's state as a pyinfra fact: one script, one round trip, one JSON line."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from pyinfra.api import FactBase, QuoteString, StringCommand
from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.host import Host

from ktfleet.config import Workstation
from ktfleet.host import bundle
from ktfleet.host.state import SCHEMA, HostState
from ktfleet.plan.request import request

_CACHE = "ktfleet_state"
_DO = "see what `sudo python3 -c 'print(1)'` prints there"


def probe_arguments(config: Workstation | None = None) -> tuple[str, ...]:
    """What the probe has to read for the settings table, the managed files and one host's configuration."""
    wanted = request(config)
    return (
        *("--sysctl", *wanted.sysctl),
        *("--sysfs", *wanted.sysfs),
        *("--file", *wanted.files),
        *("--link", *wanted.links),
        *("--text", *wanted.texts),
        *("--mount", *wanted.mounts),
        *("--unit", *wanted.units),
        *("--environment", *wanted.environment),
        *("--package", *wanted.packages),
        *("--apt", *wanted.apt),
        *("--journald", *wanted.journald),
        *("--account", *wanted.accounts),
        *("--folder", *wanted.folders),
        *("--port", *wanted.ports),
        *("--before", wanted.before),
    )


class ProbedState(FactBase[HostState | None]):
    """Runs the probe on the host and reads its JSON. None when the probe could not run."""

    def command(self, arguments: tuple[str, ...]) -> StringCommand:
        """The whole probe as one command, with its arguments: nothing is left on the host."""
        return StringCommand("python3", "-I", "-c", QuoteString(bundle.source()), *map(QuoteString, arguments))

    def process(self, output: list[str]) -> HostState | None:
        """Find the JSON among whatever a shell profile printed."""
        line = next((line for line in reversed(output) if line.startswith("{")), None)
        if line is None:
            raise FactProcessError(f"the probe said nothing: seen {output[-1:]}, wanted one line of JSON; {_DO}")
        return parse(line)


def parse(line: str) -> HostState:
    """The probe's JSON as a state. Raises FactProcessError."""
    try:
        data: dict[str, Any] = json.loads(line)
        state = HostState.model_validate(data)
    except (ValueError, ValidationError) as error:
        raise FactProcessError(
            f"the probe's answer cannot be read: seen {line[:80]!r}, wanted its JSON; {_DO}"
        ) from error
    if state.schema_version != SCHEMA:
        raise FactProcessError(f"the probe has another schema: seen {state.schema_version}, wanted {SCHEMA}; {_DO}")
    return state


def host_state(host: Host, config: Workstation) -> HostState | None:
    """This host's state, probed once and kept until `forget`."""
    if _CACHE not in host.connector_data:
        # A failed probe is a refusal or a verdict of ours, not pyinfra's failure of the host.
        host.connector_data[_CACHE] = host.get_fact(ProbedState, probe_arguments(config), _ignore_errors=True)
    state: HostState | None = host.connector_data[_CACHE]
    return state


def forget(host: Host) -> None:
    """Drop the kept state: something on the host changed."""
    host.connector_data.pop(_CACHE, None)
