"""The server of a machine: the lab's engine behind the real unit, from packages that a deploy can get."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktfleet import recipes
from ktfleet.measure.decode_record import Record as DecodeRecord
from ktfleet.plan.places import MEASUREMENTS, MODELS
from ktfleet.recipes.model import Experts
from ktfleet.sources import Stack
from tests import wheels
from tests.lab import gateway, locked
from tests.lab.deploying import NO_REBOOT, Run, pyinfra
from tests.lab.machine import Machine

UNIT = "ktfleet-server.service"
MAIN = f"systemctl show -p MainPID --value {UNIT}"
CHILD = f"pgrep -P $({MAIN})"
URL = "http://127.0.0.1:30000"
VARIABLE = "LAB_ENGINE"
LIMIT_S = 180
ENVIRONMENT_BYTES = 50_000_000


@dataclass(frozen=True)
class Host:
    """The machine, the packages that it can get while a deploy runs, and what it serves."""

    machine: Machine
    folder: Path
    lock: Path
    recipe: str

    def deploy(
        self,
        deploy: str = "tests/lab/only_server.py",
        *,
        engine: dict[str, Any] | None = None,
        server: dict[str, Any] | None = None,
        **override: Any,
    ) -> Run:
        """engine: how the engine is to be. server: the configuration's key of this name."""
        stack = Stack(lock=str(self.lock), index=f"{gateway.URL}/simple", bytes=ENVIRONMENT_BYTES)
        data = ("--data", f"stack={stack.model_dump_json(exclude_none=True)}", "--data", f"recipe={self.recipe}")
        if engine:
            override["environment"] = {VARIABLE: json.dumps(engine)}
        keys = {"override": override, "server": server}
        more = tuple(word for key, value in keys.items() if value for word in ("--data", f"{key}={json.dumps(value)}"))
        with gateway.serving(self.machine.folder, self.folder):
            return pyinfra(self.machine, deploy, *NO_REBOOT, *data, *more)

    def measured(self, **order: Any) -> DecodeRecord:
        """The decode rate's measurement, which a check has placed, with another order: the check's takes minutes."""
        text = json.dumps({"url": URL, "tokens": 64, "ladder": [], "streams": [], **order})
        done = self.machine.run(f"python3 -I {MEASUREMENTS} decode {shlex.quote(text)}", sudo=True)
        return DecodeRecord.model_validate_json(done.stdout)

    def main(self) -> str:
        """The unit's main process; "0": it has none."""
        return self.machine.run(MAIN).stdout.strip()

    def serves(self) -> bool:
        return (
            '"state": "done"' in self.told()
            and self.machine.run(f"systemctl -q is-active {UNIT}", check=False).returncode == 0
        )

    def told(self) -> str:
        """How far its start is, as the unit's program says it."""
        return self.machine.run("cat /run/ktfleet-server/progress.json", sudo=True, check=False).stdout

    def wait_until(self, true: Callable[[], bool]) -> None:
        for _ in range(LIMIT_S):
            if true():
                return
            time.sleep(1)
        seen = self.machine.run(f"systemctl status {UNIT}; journalctl -n 60 --no-pager", sudo=True, check=False).stdout
        raise AssertionError(f"not true after {LIMIT_S} s:\n{seen}")


@contextmanager
def host(machine: Machine, folder: Path, recipe: str, server: Path, packages: str = "") -> Iterator[Host]:
    """A machine with the configuration of that recipe's model, where its weights would be.

    server: a wheel that has sglang.launch_server. packages: what else is installed, as lines of a lock.
    """
    lock = folder / "lock.txt"
    lock.write_text(wheels.lock(server) + packages)
    for wheel in (server, *(locked.fetch(packages) if packages else ())):
        shutil.copy(wheel, folder)
    wheels.publish(folder)
    served = recipes.load(recipe)
    place = f"{MODELS}/{served.model}"
    config = shlex.quote(json.dumps(configuration(served.experts)))
    machine.run(f"mkdir -p '{place}' && echo {config} > '{place}/config.json'", sudo=True)
    yield Host(machine, folder, lock, recipe)
    machine.run(f"systemctl -q disable --now {UNIT}; rm -r '{place}' /opt/ktfleet", sudo=True)


def configuration(experts: Experts) -> dict[str, int]:
    """The sizes that a checkpoint's config.json names, as DeepSeek's does."""
    return {
        "num_hidden_layers": experts.layers,
        "n_routed_experts": experts.count,
        "num_experts_per_tok": experts.per_token,
        "hidden_size": experts.hidden,
        "moe_intermediate_size": experts.intermediate,
    }
