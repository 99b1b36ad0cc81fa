"""Admission judges the whole inventory, and touches nothing."""

from __future__ import annotations

from io import StringIO
from typing import Any

import gevent
import pytest
from pyinfra.api.exceptions import DeployError
from rich.console import Console

from ktfleet import report, results
from ktfleet.pyinfra_api.admission import admit, own_data
from tests.fake.hosts import FakeHost, fleet
from tests.states import workstation

GOOD = workstation()
SNC = workstation(nodes_per_socket=2, node_gib=(63, 63, 63, 63))


def admitted(*fakes: FakeHost, **group_data: Any) -> Any:
    """Each host's plan, all asked for at once as pyinfra does."""
    with fleet(*fakes, group_data=group_data) as (state, hosts):
        jobs = [gevent.spawn(admit, state.inventory, host) for host in hosts.values()]
        gevent.joinall(jobs)
        errors = {str(job.exception) for job in jobs if job.exception}
        assert all(isinstance(job.exception, DeployError) for job in jobs if job.exception)
    return errors if errors else [job.value for job in jobs]


def test_every_host_gets_its_own_plan_for_one_probe() -> None:
    one, two = FakeHost("ws01", GOOD), FakeHost("ws02", GOOD, {"cpuinfer": 38})
    assert [plan.cores.cpuinfer for plan in admitted(one, two)] == [40, 38]
    assert (one.probes, two.probes) == (1, 1)


def test_one_bad_host_refuses_the_whole_fleet_in_one_message() -> None:
    fakes = [
        FakeHost("ws01", GOOD),
        FakeHost("ws02", SNC, {"recipie": 1}),
        FakeHost("ws03", SNC),
        FakeHost("ws04", None),
    ]
    (message,) = admitted(*fakes)
    lines = message.splitlines()
    assert [line.split(" ")[0] for line in lines if "refused" in line] == ["ws02", "ws03", "ws04"]
    assert "ws02  refused: ws02: recipie: seen an unknown key" in message
    assert "ws03  refused: sub-NUMA clustering is on: seen 4 nodes on 2 sockets, wanted 2" in message
    assert "ws04  refused: the host cannot be probed" in message
    assert lines[-1] == "Nothing was touched."
    assert all(fake.commands == [] for fake in fakes)


def test_a_host_that_cannot_be_reached_refuses_the_run_too() -> None:
    good, gone = FakeHost("ws01", GOOD), FakeHost("ws02", GOOD, reachable=False)
    (message,) = admitted(good, gone)
    assert "ws02  refused: the host cannot be reached: seen no ssh connection, wanted one; see its line" in message
    assert good.commands == []


def test_sudo_with_a_password_is_refused_before_pyinfra_asks_for_it() -> None:
    fake = FakeHost("ws01", GOOD, {"_sudo": True}, sudo=False)
    (message,) = admitted(fake)
    assert "ws01  refused: sudo wants a password: seen sudo -n refused, wanted sudo without a password;" in message
    assert fake.probes == 0


@pytest.mark.parametrize("data", [{}, {"_sudo": True, "_sudo_password": "x"}])
def test_sudo_is_not_tried_when_it_is_not_used_or_a_password_is_given(data: dict[str, object]) -> None:
    (plan,) = admitted(FakeHost("ws01", GOOD, data, sudo=False))
    assert plan.cores.cpuinfer == 40


def test_the_results_of_every_host_say_how_admission_ended() -> None:
    admitted(FakeHost("ws01", GOOD), FakeHost("ws02", SNC))
    found = {host.host: host.checks["admission"].verdicts for host in results.load()}
    assert [verdict.result for verdict in found["ws01"]] == ["pass"]
    assert found["ws02"][0].key == "sub-NUMA clustering is on"
    assert {verdict.result for verdict in found["ws02"]} == {"fail"}


def test_what_is_accepted_stands_in_every_report() -> None:
    data = {"recipe": "dsv4-flash-amxint4", "override": {"offload": {"deferred": 5}}, "accept": {"deferred": "a trial"}}
    admitted(FakeHost("ws01", GOOD, data), FakeHost("ws02", GOOD))
    found = list(results.load())
    one, two = ({v.key: v for v in host.checks["admission"].verdicts} for host in found)
    assert "accepted: a trial; known to cost: 5 to 7: visibly less accurate" in one["accept.deferred"].seen
    assert set(two) == {"refusals"}
    console = Console(width=300, file=StringIO())
    for table in report.verdict_tables(found):
        console.print(table)
    assert "accepted: a trial" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_wrong_override_names_the_host() -> None:
    (message,) = admitted(FakeHost("ws01", GOOD, {"override": {"offload": {"defered": 2}}}))
    assert "ws01  refused: ws01: override: offload.defered: seen an unknown key" in message
    assert "did you mean 'deferred'?" in message


def test_what_cannot_be_read_refuses_a_deploy() -> None:
    state = GOOD.model_copy(update={"cpu_flags": None, "unreadable": {"/proc/cpuinfo": "permission denied"}})
    (message,) = admitted(FakeHost("ws01", state))
    assert "ws01  refused: the CPU flags cannot be read: seen permission denied" in message


def test_pyinfras_own_data_is_not_ours() -> None:
    data = {"_sudo": True, "ssh_port": 22, "ssh_paramiko_connect_kwargs": {}, "docker_identifier": "x", "cpuinfer": 40}
    with fleet(FakeHost("ws01", GOOD, data)) as (_, hosts):
        assert own_data(hosts["ws01"]) == {"cpuinfer": 40}


def test_group_data_counts_and_host_data_wins() -> None:
    plans = admitted(FakeHost("ws01", GOOD), FakeHost("ws02", GOOD, {"cpuinfer": 36}), cpuinfer=38)
    assert [plan.cores.cpuinfer for plan in plans] == [38, 36]
