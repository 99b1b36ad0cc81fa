"""The GPU check as pyinfra really prepares and executes it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.deploy import add_deploy

from checks import gpu
from ktfleet import plan, recipes, results
from ktfleet.config import Gpu, Workstation
from ktfleet.plan import Plan
from ktfleet.plan.places import MEASURE
from ktfleet.pyinfra_api.gpu import sources
from tests.fake.hosts import FakeHost, ScriptedConnector, execute, fleet
from tests.records import plain
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
RTX_5090 = Gpu()


def made(wanted: Gpu | None = RTX_5090) -> Plan:
    return plan.make(workstation(), Workstation(gpu=wanted), RECIPE)


@dataclass
class GpuHost(FakeHost):
    """A host whose measurement prints `measured` (None: nothing). `placed` are the files that lie there already."""

    measured: dict[str, Any] | str | None = None
    placed: bool = False
    uploads: list[str] = field(default_factory=list)
    options: str = ""

    def answer(self, command: str) -> tuple[bool, list[str]]:
        if command.startswith("sha256sum"):
            digests = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {place}" for place, path in sources().items())
            return True, ["Welcome", *digests] if self.placed else ["Welcome"]
        if command.startswith("timeout"):
            self.options = command
            said = self.measured if isinstance(self.measured, str) else json.dumps(self.measured)
            return self.measured is not None, ["Welcome", said] if self.measured is not None else []
        return super().answer(command)


class Connector(ScriptedConnector):
    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **__: Any) -> bool:
        assert Path(filename_or_io).is_file()
        self.fake.uploads.append(remote_filename)
        return not any(part in remote_filename for part in self.fake.fails)


def run(*hosts: GpuHost, wanted: Gpu | None = RTX_5090, **more: Any) -> bool:
    with fleet(*hosts, connector=Connector) as (state, _):
        return execute(state, [(partial(gpu.check, **more), made(wanted))])


def host(measured: dict[str, Any] | str | None, **more: Any) -> GpuHost:
    return GpuHost("ws01", converged(made()), measured=measured, **more)


def stored() -> dict[str, str]:
    (found,) = results.load()
    return {verdict.key: verdict.result for verdict in found.checks["gpu"].verdicts}


def test_a_healthy_host_passes_and_is_measured_under_load() -> None:
    fake = host(plain("healthy"))
    assert run(fake)
    assert set(stored().values()) == {"pass"}
    assert fake.options == (
        f"timeout -k 10 600 python3 -I {MEASURE}/gpu.py --load --arch 120a --toolkit /usr/local/cuda-12.9"
    )


def test_what_is_missing_is_placed_and_only_that() -> None:
    fake = host(plain("healthy"))
    assert run(fake)
    names = ("gpu.py", "gpu.cu", "pynvml.py")
    assert fake.uploads == [f"{MEASURE}/{name}.new" for name in names]
    assert fake.commands == [
        f"(umask 022 && mkdir -p {MEASURE})",
        " && ".join(f"chmod 0644 {MEASURE}/{name}.new && mv {MEASURE}/{name}.new {MEASURE}/{name}" for name in names),
    ]
    again = host(plain("healthy"), placed=True)
    assert run(again)
    assert (again.uploads, again.commands) == ([], [])


def test_a_bad_card_fails_its_host_alone_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = host(plain("x8")), GpuHost("ws02", converged(made()), measured=plain("healthy"))
    with caplog.at_level("INFO"), fleet(bad, good, connector=Connector) as (state, hosts):
        assert not execute(state, [(gpu.check, made())])
        assert state.failed_hosts == {hosts["ws01"]}
    assert "gpu PCIe width: seen x8, wanted x16; reseat the card" in caplog.text


@pytest.mark.parametrize("said", [None, "{", '{"schema": 99}', '{"schema": 1, "cards": 3}', "no JSON"])
def test_a_measurement_that_says_nothing_useful_is_inconclusive(said: str | None) -> None:
    assert not run(host(said))
    assert stored() == {"gpu": "inconclusive"}


def test_a_failed_upload_leaves_the_gpu_unproven() -> None:
    run(host(plain("healthy")))
    assert not run(host(plain("healthy"), fails=("pynvml",)), again=True)
    assert stored() == {"gpu": "inconclusive"}


def test_a_host_without_a_card_is_skipped_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    fake = host(None)
    with caplog.at_level("INFO"):
        assert run(fake, wanted=None)
    assert (fake.uploads, fake.commands, fake.options) == ([], [], "")
    assert stored() == {"gpu": "skipped"}
    assert "the configuration says gpu = None" in caplog.text


def test_a_dry_run_measures_nothing() -> None:
    fake = host(plain("healthy"))
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, gpu.check, made())
    assert (fake.uploads, fake.commands, fake.options) == ([], [], "")


def test_a_second_run_measures_nothing_and_tells_the_age(caplog: pytest.LogCaptureFixture) -> None:
    assert run(host(plain("healthy")))
    before = stored()
    second = host(None)
    with caplog.at_level("INFO"):
        assert run(second)
    assert second.options == ""
    assert stored() == before
    assert re.search(r"gpu: \d+ pass.*, measured 0:00:\d\d ago; nothing that they depend on has changed", caplog.text)


def test_another_boot_is_measured_again() -> None:
    assert run(host(plain("healthy")))
    second = host(plain("healthy"))
    kernel = second.state.kernel.model_copy(update={"boot_id": "another"})
    second.state = second.state.model_copy(update={"kernel": kernel})
    assert run(second)
    assert second.options != ""


def test_what_was_bad_is_measured_again() -> None:
    assert not run(host(plain("x8")))
    second = host(plain("healthy"))
    assert run(second)
    assert set(stored().values()) <= {"pass", "skipped"}


def test_on_request_it_is_measured_again() -> None:
    assert run(host(plain("healthy")))
    second = host(plain("healthy"))
    assert run(second, again=True)
    assert second.options != ""
