"""The card's driver as pyinfra really prepares and executes its installation."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Gpu, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import places
from tasks import gpu, kernel
from tests.fake.hosts import FakeHost, execute, fleet
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
PLAN = plan.make(workstation(), Workstation(gpu=Gpu(power_limit_w=450)), RECIPE)
NO_CARD = plan.make(workstation(), Workstation(gpu=None), RECIPE)
ORDER = (
    *("download-file", f" {places.NVIDIA_PIN}", f" {places.NVIDIA_SOURCE}", "Error-Mode=any update"),
    *("--simulate install", "--no-remove install", f" {places.NOUVEAU_BLACKLIST}", "modprobe nvidia"),
    *(f" {places.PERSISTENCED}", "add-wants", f" {places.POWER_LIMIT}", f"enable {places.POWER_LIMIT_UNIT}"),
)


def run(fake: FakeHost, made: plan.Plan = PLAN, *more: Any) -> bool:
    with fleet(fake) as (state, _):
        return execute(state, [(gpu.install, made), *((deploy, made) for deploy in more)])


def test_a_fresh_host_gets_everything_in_its_order() -> None:
    fake = FakeHost("ws01", workstation())
    assert run(fake)
    found = [next(i for i, command in enumerate(fake.commands) if part in command) for part in ORDER]
    assert found == sorted(set(found))
    assert places.LOCK in fake.commands[0]


@pytest.mark.parametrize("fails", ORDER)
def test_nothing_is_done_after_a_failing_step(fails: str) -> None:
    fake = FakeHost("ws01", workstation(), fails=(fails,))
    assert not run(fake)
    assert fails in fake.commands[-1]


def test_a_converged_host_gets_no_command_and_one_probe() -> None:
    fake = FakeHost("ws01", converged(PLAN))
    assert run(fake, PLAN, kernel.reboot_if_needed)
    assert (fake.commands, fake.probes) == ([], 1)


@pytest.mark.parametrize("state", [workstation(), converged(NO_CARD)])
def test_without_a_card_nothing_is_done_for_a_stated_reason(state: HostState, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeHost("ws01", state)
    with caplog.at_level("INFO"):
        assert run(fake, NO_CARD)
    assert (fake.commands, fake.probes) == ([], 1)
    assert "no driver is installed: the configuration says gpu = None" in caplog.text


def test_a_kernel_without_the_module_is_not_booted() -> None:
    """The module on disk is another one than the loaded: a reboot is due, and the proof comes first."""
    state = converged(PLAN)
    state = state.model_copy(update={"nvidia": state.nvidia.model_copy(update={"loaded": "580.65.06"})})
    fake = FakeHost("ws01", state, fails=("modinfo -k 6.1.0 nvidia ",))
    assert not run(fake, PLAN, kernel.reboot_if_needed)
    (proof,) = fake.commands
    assert proof.startswith("modinfo -k 6.1.0 nvidia ")
