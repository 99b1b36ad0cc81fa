"""The workstation's real topology: 80 CPUs boot, are probed and planned."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host import bundle
from ktfleet.host.state import HostState
from ktfleet.pyinfra_api.facts import probe_arguments
from tests.lab.conftest import Boot
from tests.lab.topology import REAL

RECIPE = Path(__file__).with_name("recipe.toml")


@pytest.mark.lab
@pytest.mark.long
def test_80_cpus_are_40_workers_in_2_pools(boot: Boot) -> None:
    machine = boot(REAL)
    command = machine.ssh_command("sudo", "python3", "-I", "-", shlex.join(probe_arguments()))
    probed = subprocess.run(command, input=bundle.source(), capture_output=True, text=True, check=True)
    made = plan.make(HostState.model_validate_json(probed.stdout), Workstation(gpu=None), recipes.load(str(RECIPE)))
    assert (made.refusals, made.unknown) == ((), ())
    assert (made.cores.pools, made.cores.cpuinfer) == (2, 40)
    # qemu numbers siblings 0-1: every other CPU is a worker's.
    assert made.cores.worker_cpus == {0: tuple(range(0, 40, 2)), 1: tuple(range(40, 80, 2))}
    assert made.cores.other_cpus == tuple(range(1, 80, 2))
