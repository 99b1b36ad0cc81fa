"""The installation of the server's environment as pyinfra really prepares and executes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.deploy import add_deploy

from checks import stack as check
from ktfleet import plan, recipes, results
from ktfleet.config import Gpu, Workstation
from ktfleet.measure.stack_record import SCHEMA
from ktfleet.plan import Plan, told
from ktfleet.plan.places import LOCK, STACK, STACK_LOCK, STACK_UNIT, STACK_UV
from ktfleet.pyinfra_api import waiting
from ktfleet.pyinfra_api.stack import PROOF
from ktfleet.sources import Stack
from tasks import stack
from tests.fake.clock import Clock
from tests.fake.hosts import FakeHost, ScriptedConnector, execute, fleet
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
PACKAGES = {"alpha": "1.0", "beta": "1.0"}
DONE = "ActiveState=inactive\nResult=success\nExecMainStatus=0\n" + json.dumps({"state": "done", "step": "installing"})
CUT = "the host cannot fetch packages: seen 'connection refused', wanted an answer; repair its way there"


def made(folder: Path, *, gpu: Gpu | None = None, wanted: bool = True) -> Plan:
    lock = folder / "lock.txt"
    lock.write_text("".join(f"{name}=={version} --hash=sha256:00\n" for name, version in PACKAGES.items()))
    return plan.make(workstation(), Workstation(stack=Stack(lock=str(lock)) if wanted else None, gpu=gpu), RECIPE)


def record(**installed: str) -> dict[str, Any]:
    """What the proof says of an environment with these packages."""
    found = {name: [version] for name, version in {**PACKAGES, **installed}.items()}
    about = {"python": "3.11.2", "prefix": "/opt/ktfleet/stacks/x", "user": "ktfleet", "gpu": False, "damaged": {}}
    return {"schema": SCHEMA, **about, "locked": PACKAGES, "installed": found, "proofs": {}}


@dataclass
class Host(FakeHost):
    """Its environment is built when the unit was started, unless that says `unit`; its proof prints `proof`."""

    wanted: Plan | None = None
    unit: str = DONE
    proof: dict[str, Any] | str | None = None
    uploads: list[str] = field(default_factory=list)
    proofs: list[str] = field(default_factory=list)

    def answer(self, command: str) -> tuple[bool, list[str]]:
        if command == told.command(STACK_UNIT):
            return True, self.unit.splitlines()
        if command.startswith("cd / && timeout"):
            self.proofs.append(command)
            said = self.proof if isinstance(self.proof, str) else json.dumps(self.proof)
            return self.proof is not None, ["Welcome", said] if self.proof is not None else []
        if command.startswith("sha256sum"):
            return True, ["Welcome"]
        if f"start --no-block {STACK_UNIT}" in command and self.unit == DONE and self.wanted and self.state:
            assert self.wanted.stack
            job = self.wanted.stack.job
            self.state = self.state.model_copy(update={"texts": {**self.state.texts, job.complete: job.name}})
        return super().answer(command)


class Connector(ScriptedConnector):
    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **__: Any) -> bool:
        assert Path(filename_or_io).is_file()
        self.fake.uploads.append(remote_filename)
        return not any(part in remote_filename for part in self.fake.fails)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(waiting, "time", Clock())
    caplog.set_level("INFO", logger="pyinfra")


def run(fake: FakeHost, wanted: Plan, deploy: Callable[[Plan], None] = stack.install) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(deploy, wanted)])


def stored() -> dict[str, str]:
    (found,) = results.load()
    return {judged.key: judged.result for judged in found.checks["stack"].verdicts}


def switched(fake: Host) -> bool:
    return any(f"mv -fT {STACK}.new {STACK}" in command for command in fake.commands)


def test_a_fresh_host_is_given_everything_in_its_order(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", workstation(), wanted=wanted, proof=record())
    assert run(fake, wanted)
    assert fake.uploads == [f"{STACK_UV}.new", f"{STACK_LOCK}.new", f"{PROOF}.new"]
    order = [LOCK, "base64 -d", "stack.json", f"chmod 0755 {STACK_UV}.new", f"chmod 0644 {STACK_LOCK}.new",
             f"start --no-block {STACK_UNIT}", f"chmod 0644 {PROOF}.new", f"mv -fT {STACK}.new {STACK}"]  # fmt: skip
    found = [next(i for i, command in enumerate(fake.commands) if part in command) for part in order]
    assert found == sorted(found)
    assert set(stored().values()) <= {"pass", "skipped"}
    assert "pass" in stored().values()


def test_the_proof_runs_as_the_service_s_user_in_the_new_environment(tmp_path: Path) -> None:
    wanted = made(tmp_path, gpu=Gpu())
    assert wanted.stack
    fake = Host("ws01", workstation(), wanted=wanted, proof=record())
    run(fake, wanted)
    folder = wanted.stack.job.folder
    assert wanted.overlay
    asked = f"'KTFLEET_OVERLAY={wanted.overlay.asked}' KTFLEET_OVERLAY_FOLDER={wanted.overlay.folder}"
    assert fake.proofs == [
        f"cd / && timeout -k 10 4500 sudo -H -u ktfleet env CUDA_HOME=/usr/local/cuda-12.9 {asked} "
        f"{folder}/bin/python -I {PROOF} --lock {folder}/lock.txt --gpu"
    ]


def test_a_converged_host_gets_no_command_no_upload_and_one_probe(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", converged(wanted), wanted=wanted)
    assert run(fake, wanted)
    assert (fake.commands, fake.uploads, fake.proofs, fake.probes) == ([], [], [], 1)


def test_a_failed_installation_is_its_line_and_nothing_is_switched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = made(tmp_path)
    failed = (
        f"ActiveState=failed\nResult=exit-code\nExecMainStatus=1\n{json.dumps({'state': 'failed', 'problems': [CUT]})}"
    )
    fake = Host("ws01", workstation(), wanted=wanted, unit=failed, proof=record())
    assert not run(fake, wanted)
    assert CUT in caplog.text
    assert (fake.proofs, switched(fake)) == ([], False)


def test_a_failed_proof_leaves_the_environment_in_use_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", workstation(), wanted=wanted, proof=record(beta="0.9"))
    assert not run(fake, wanted)
    assert not switched(fake)
    assert "fail" in stored().values()
    assert "beta" in caplog.text
    fake.proof = record()
    fake.commands.clear()
    assert run(fake, wanted), "the next run proves it again"
    assert switched(fake)
    assert not any("start --no-block" in command for command in fake.commands), "and builds nothing"


@pytest.mark.parametrize("said", [None, "{", '{"schema": 99}', "no JSON"])
def test_a_proof_that_says_nothing_useful_is_inconclusive(tmp_path: Path, said: str | None) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", workstation(), wanted=wanted, proof=said)
    assert not run(fake, wanted)
    assert (stored(), switched(fake)) == ({"stack": "inconclusive"}, False)


def test_an_upload_that_fails_starts_nothing(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", workstation(), wanted=wanted, fails=("lock.txt",))
    assert not run(fake, wanted)
    assert not any("start --no-block" in command for command in fake.commands)


def test_only_what_differs_is_uploaded(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    assert wanted.stack
    fake = Host("ws01", workstation(), wanted=wanted, proof=record())
    digest = hashlib.sha256(wanted.stack.lock.read_bytes()).hexdigest()
    fake.says[f"sha256sum {STACK_LOCK} 2>/dev/null || true"] = f"{digest}  {STACK_LOCK}"
    answer = fake.answer
    fake.answer = lambda command: (  # type: ignore[method-assign]
        (True, [fake.says[command]]) if command in fake.says else answer(command)
    )
    assert run(fake, wanted)
    assert fake.uploads == [f"{STACK_UV}.new", f"{PROOF}.new"]


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", workstation(), wanted=wanted, proof=record())
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, stack.install, wanted)
        add_deploy(state, check.check, wanted)
    assert (fake.commands, fake.uploads, fake.proofs) == ([], [], [])


def test_without_a_stack_it_is_said_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = made(tmp_path, wanted=False)
    fake = Host("ws01", converged(wanted), wanted=wanted)
    assert run(fake, wanted)
    assert run(fake, wanted, check.check)
    assert "the server's environment is not installed: the configuration says stack = None" in caplog.text
    assert (fake.commands, fake.uploads, stored()) == ([], [], {"stack": "skipped"})


def test_the_check_proves_what_is_in_use(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    fake = Host("ws01", converged(wanted), wanted=wanted, proof=record())
    assert run(fake, wanted, check.check)
    assert f"{STACK}/bin/python -I {PROOF} --lock {STACK}/lock.txt" in fake.proofs[0]
    fake.proof = record(gamma="1.0", alpha="2.0")
    assert not run(fake, wanted, check.check)
