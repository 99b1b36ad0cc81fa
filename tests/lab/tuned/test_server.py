"""The server as a service, in order: first start, left alone, started again once, killed, rebooted, refused, gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktfleet.plan.places import FRONT_UNIT, SERVER_KEY
from ktfleet.plan.server.proven import LAUNCH, READY
from ktfleet.sources import Stack
from tests import servers
from tests.lab import gateway, locked, serving
from tests.lab.deploying import NO_REBOOT, pyinfra
from tests.lab.machine import Machine
from tests.lab.serving import CHILD, MAIN, UNIT, Host

pytestmark = pytest.mark.lab

LATENCY = "od -An -td4 /dev/cpu_dma_latency"
FATAL = "Core 2 inside NUMA node 1 not found"


@pytest.fixture(scope="module")
def host(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    (kt_kernel,) = locked.fetch(locked.lines("kt-kernel"))
    server = servers.write_engine(tmp_path_factory.mktemp("wheel"), kt_kernel)
    with serving.host(machine, tmp_path_factory.mktemp("server"), "tests/lab/recipe.toml", server) as made:
        yield made


def test_a_first_deploy_serves(host: Host) -> None:
    run = host.deploy("deploy.py")
    assert run.code == 0, run.said
    assert run.results("fail", "inconclusive") == set()
    assert run.results("pass") >= {LAUNCH, READY, "MemorySwapMax", "cpu_dma_latency", "compact_memory"}
    job = json.loads(host.machine.run("cat /etc/ktfleet/server.json").stdout)
    variables = host.machine.run(f"tr '\\0' '\\n' </proc/$({CHILD})/environ", sudo=True).stdout
    assert dict(line.split("=", 1) for line in variables.splitlines()) == job["environment"], "nothing is inherited"
    status = host.machine.run(f"grep -h Cpus_allowed_list /proc/$({CHILD})/status").stdout.split()
    assert status[1:] == [job["cpus"]] == ["1,3,5,7"], "qemu numbers siblings 0-1: workers have the even CPUs"
    assert host.machine.run(f"ps -o user= -p $({CHILD})").stdout.strip() == "ktfleet"


def test_a_second_deploy_leaves_it_alone(host: Host) -> None:
    before = host.main()
    run = host.deploy("deploy.py")
    assert (run.code, run.changed, host.main()) == (0, 0, before), run.said


def test_the_check_asks_it(host: Host) -> None:
    run = host.deploy("checks/server.py")
    assert run.code == 0, run.said
    assert "server: 1 skipped, 3 pass" in run.said, "this recipe has no overlay"


def test_a_changed_field_of_the_recipe_restarts_it_once(host: Host) -> None:
    before = host.main()
    run = host.deploy(context={"running_requests": 1})
    assert run.code == 0, run.said
    assert "the server is started: another command line" in run.said
    after = host.main()
    assert after != before
    assert host.deploy(context={"running_requests": 1}).changed == 0
    assert host.main() == after


def test_a_killed_one_comes_back(host: Host) -> None:
    before = host.main()
    host.machine.run(f"kill -9 $({MAIN})", sudo=True)
    host.wait_until(lambda: host.main() not in ("0", before) and host.serves())
    assert host.machine.run(LATENCY, sudo=True).stdout.strip() == "20", "the cap came back with it"


def test_after_a_reboot_it_serves_without_a_controller(host: Host) -> None:
    host.machine.reboot()
    host.wait_until(host.serves)
    run = host.deploy("checks/drift.py", context={"running_requests": 1})
    assert run.results("pass") >= {LAUNCH, READY}, run.said


@pytest.mark.long
def test_with_a_key_clients_reach_it_through_the_front_alone(host: Host, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef-s3cret\n")
    key.chmod(0o600)
    public = {"host": "0.0.0.0", "key": {"file": str(key)}}
    run = host.deploy(server=public)
    assert run.code == 0, run.said
    assert host.deploy(server=public).changed == 0
    run = host.deploy("checks/server.py", server=public)
    assert run.code == 0, run.said
    passed = {name for name, verdict in run.checks["server"].items() if verdict["result"] == "pass"}
    assert passed >= {"front asks for the key", "front takes the key", "front hides other paths", "key is not shown"}
    shown = host.machine.run(f"journalctl --no-pager | grep -cFf {SERVER_KEY}", sudo=True, check=False).stdout
    assert shown.strip() == "0"
    assert host.machine.run(f"stat -c '%U %a' {SERVER_KEY}").stdout.strip() == "root 600"


def test_a_port_that_is_taken_is_refused_and_the_old_server_goes_on(host: Host) -> None:
    before = host.main()
    taken = "systemd-run -q --unit=taken python3 -m http.server --bind 127.0.0.1 30500"
    host.machine.run(f"{taken} && timeout 60 sh -c 'until ss -ltn | grep -q 30500; do sleep 1; done'", sudo=True)
    run = host.deploy("checks/drift.py")
    assert "in use" not in run.said
    with gateway.serving(host.machine.folder, host.folder):
        stack = Stack(lock=str(host.lock), index=f"{gateway.URL}/simple").model_dump_json(exclude_none=True)
        data = ("--data", f"stack={stack}", "--data", 'server={"port": 30500}')
        run = pyinfra(host.machine, "tests/lab/only_server.py", *NO_REBOOT, *data)
    assert run.code != 0
    assert "port 30500 is in use: seen python3 (pid " in run.said, run.said
    assert "Nothing was touched." in run.said
    assert host.main() == before


def test_a_fatal_line_ends_the_wait_with_its_translation(host: Host) -> None:
    run = host.deploy(engine={"lines": [FATAL]})
    assert run.code != 0
    assert (
        f"a worker found no core of its own: it runs anywhere and slows all others, tenfold: seen '{FATAL}'" in run.said
    )


@pytest.mark.long
def test_an_end_is_one_line(host: Host) -> None:
    run = host.deploy(engine={"ends": "RuntimeError: no such thing"})
    assert run.code != 0
    assert "the server ended: seen exit status 1; its last word: 'RuntimeError: no such thing'" in run.said, run.said


def test_without_a_stack_in_the_configuration_it_is_gone(host: Host) -> None:
    run = pyinfra(host.machine, "deploy.py", *NO_REBOOT)
    assert run.proven, run.said
    assert host.machine.run(f"systemctl is-active {UNIT}", check=False).stdout.strip() == "inactive"
    for gone in (f"/etc/systemd/system/{UNIT}", f"/etc/systemd/system/{FRONT_UNIT}", SERVER_KEY):
        assert host.machine.run(f"ls {gone}", sudo=True, check=False).returncode != 0
