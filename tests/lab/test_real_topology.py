"""The workstation's real topology: 80 CPUs boot, are probed and planned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ktfleet.host import bundle
from tests.lab.conftest import Boot
from tests.lab.topology import REAL

KTFLEET = Path(sys.executable).with_name("ktfleet")
ROOT = Path(__file__).parents[2]


@pytest.mark.lab
def test_80_cpus_are_40_workers_in_2_pools(boot: Boot, tmp_path: Path) -> None:
    machine = boot(REAL)
    command = machine.ssh_command("sudo python3 -I -")
    state = tmp_path / "state.json"
    probed = subprocess.run(command, input=bundle.source(), capture_output=True, text=True, check=True)
    state.write_text(probed.stdout)
    planned = subprocess.run(
        [KTFLEET, "plan", "--state", state, "--recipe", "tests/lab/recipe.toml", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    plan = json.loads(planned.stdout)
    assert (planned.returncode, plan["refusals"], plan["unknown"]) == (0, [], [])
    assert (plan["pools"], plan["cpuinfer"]) == (2, 40)
    # qemu numbers siblings 0-1: every other CPU is a worker's.
    assert plan["worker_cpus"] == {"0": list(range(0, 40, 2)), "1": list(range(40, 80, 2))}
    assert plan["other_cpus"] == list(range(1, 80, 2))
