"""The bandwidth check as pyinfra really prepares and executes it."""

from __future__ import annotations

from typing import Any

import pytest
from pyinfra.api.deploy import add_deploy

from checks import bandwidth
from ktfleet import plan, recipes, results
from ktfleet.config import Workstation
from ktfleet.plan.places import MEASURE
from ktfleet.pyinfra_api.decode import wanted
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.states import converged, workstation
from tests.unit.judge.test_bandwidth import dimm, record, run

DIMMS = tuple(dimm(socket, str(channel)) for socket in (0, 1) for channel in range(6))
PLAN = plan.make(workstation(), Workstation(), recipes.load("dsv4-flash-amxint4"))


def host(measured: Any) -> MeasuredHost:
    data = None if measured is None else measured.model_dump(by_alias=True)
    return MeasuredHost("ws01", converged(PLAN).model_copy(update={"dimms": DIMMS}), measured=data)


def check(fake: MeasuredHost) -> bool:
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(bandwidth.check, PLAN)])


def test_a_whole_host_passes_and_its_bandwidth_is_the_ceiling_of_its_rate() -> None:
    fake = host(record())
    assert wanted_ceiling() is None
    assert check(fake)
    assert fake.ran[0].startswith(f'timeout -k 10 180 python3 -I {MEASURE}/measure.pyz bandwidth \'{{"nodes": ')
    assert '"hugepages": "thp", "mib": 1024' in fake.ran[0]
    assert results.figures("ws01", "read GB/s of node 1") == (98.0,)
    assert wanted_ceiling() == pytest.approx(196e9 / 3.259e9, rel=1e-3)


def wanted_ceiling() -> float | None:
    """What the decode check of this host takes for its ceiling."""
    with fleet(MeasuredHost("ws01", converged(PLAN)), connector=Connector) as (_, hosts):
        return wanted(PLAN, hosts["ws01"].name).ceiling_tok_s


def test_a_slow_node_fails_and_beside_a_server_nothing_is_decided() -> None:
    assert not check(host(record(node_1=61.0)))
    assert not check(host(record(run("sweep", 0, 0, 1.0), why="server running")))
    assert {v.result: v.why for v in results.verdicts("ws01")["bandwidth"]} == {"inconclusive": "server running"}
    assert results.figures("ws01", "read GB/s of node 1") == (61.0,)


def test_a_dry_run_measures_nothing() -> None:
    fake = host(record())
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, bandwidth.check, PLAN)
    assert (fake.uploads, fake.commands, fake.ran) == ([], [], [])
