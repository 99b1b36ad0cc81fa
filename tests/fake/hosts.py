"""Scripted hosts behind pyinfra's @fake connector: real prepare and execute, no machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pyinfra.api import Config, Host, Inventory, State
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine
from pyinfra.context import ctx_state

from ktfleet.host.state import HostState

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@dataclass
class FakeHost:
    """What a host answers. `state` is what its probe prints, None: nothing. `fails` are commands that fail.

    `says` are other commands' answers. `boot_ids` is what each later connection finds: a boot id, or None while
    nothing answers.
    """

    name: str
    state: HostState | None
    data: dict[str, Any] = field(default_factory=dict)
    fails: tuple[str, ...] = ()
    reachable: bool = True
    sudo: bool = True
    says: dict[str, str] = field(default_factory=dict)
    boot_ids: Iterator[str | None] = field(default_factory=lambda: iter(()))
    commands: list[str] = field(default_factory=list)
    probes: int = 0
    boot_id: str | None = None

    def answer(self, command: str) -> tuple[bool, list[str]]:
        if command.startswith("python3 -I -c"):
            self.probes += 1
            told = self.state.model_dump_json(by_alias=True) if self.state else None
            return told is not None, ["Welcome to a talkative shell", told] if told else []
        if command.startswith("sudo -n true"):
            return True, ["Welcome"] if self.sudo else ["Welcome", "refused"]
        if command == BOOT_ID:
            return True, [self.boot_id or ""]
        if command in self.says:
            return True, [self.says[command]]
        self.commands.append(command)
        return not any(part in command for part in self.fails), []


class ScriptedConnector(FakeConnector):
    """The @fake connector, answering as the FakeHost in the host's data says."""

    @property
    def fake(self) -> FakeHost:
        return self.host.inventory.fakes[self.host.name]

    def connect(self) -> None:
        if not self.fake.reachable:
            raise ConnectError("no route to host")
        if self.host.connector_data.setdefault("connections", 0):
            self.fake.boot_id = next(self.fake.boot_ids)
            if self.fake.boot_id is None:
                raise ConnectError("no route to host")
        self.host.connector_data["connections"] += 1

    def disconnect(self) -> None:
        """Nothing is held."""

    def run_shell_command(self, command: Any, *_: Any, **__: Any) -> tuple[bool, CommandOutput]:
        status, lines = self.fake.answer(str(command))
        return status, CommandOutput([OutputLine("stdout", line) for line in lines])


@contextmanager
def fleet(
    *fakes: FakeHost,
    group_data: dict[str, Any] | None = None,
    connector: type[FakeConnector] = ScriptedConnector,
    check_for_changes: bool = False,
) -> Iterator[tuple[State, dict[str, Host]]]:
    """A connected pyinfra state over the hosts, in the prepare stage."""
    inventory = Inventory(([(fake.name, fake.data) for fake in fakes], group_data or {}))
    inventory.fakes = {fake.name: fake for fake in fakes}
    for host in inventory:
        host.connector_cls = connector
    state = State(check_for_changes=check_for_changes)
    state.init(inventory, Config())
    with ctx_state.use(state):
        state.set_stage(StateStage.Connect)
        connect_all(state)
        state.set_stage(StateStage.Prepare)
        yield state, {host.name: host for host in inventory}


def execute(state: State, deploys: Iterable[tuple[Callable[..., Any], Any]]) -> bool:
    """Prepare and run the deploys (function, argument) on all hosts; whether every host succeeded."""
    for function, argument in deploys:
        add_deploy(state, function, argument)
    state.set_stage(StateStage.Execute)
    with suppress(PyinfraError):  # "No hosts remaining!"
        run_ops(state)
    return not state.failed_hosts
