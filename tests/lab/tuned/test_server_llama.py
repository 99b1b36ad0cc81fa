"""The unit, the checks and a restart beside a real server that nobody here wrote: llama.cpp's, with a tiny model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import servers
from tests.lab import locked, serving
from tests.lab.machine import Machine
from tests.lab.serving import CHILD, Host

pytestmark = [pytest.mark.lab, pytest.mark.long]  # the official client alone takes minutes to install there


@pytest.fixture(scope="module")
def host(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    (kt_kernel,) = locked.fetch(locked.lines("kt-kernel"))
    server = servers.write_llama(tmp_path_factory.mktemp("wheel"), kt_kernel)
    folder = tmp_path_factory.mktemp("llama")
    packages = locked.with_all_it_needs("openai") + locked.lines("xllamacpp", lock=locked.CONTROLLER)
    with serving.host(machine, folder, "tests/lab/recipe.toml", server, packages) as made:
        yield made


def test_it_is_ready_when_it_has_generated(host: Host) -> None:
    run = host.deploy()
    assert run.code == 0, run.said
    assert "the server is ready" in run.said, run.said
    assert host.deploy().changed == 0


def test_it_answers_the_checks(host: Host) -> None:
    run = host.deploy("checks/server.py")
    assert run.code == 0, run.said
    run = host.deploy("checks/api.py")
    assert run.code == 0, run.said
    assert {key for key, verdict in run.checks["api"].items() if verdict["result"] == "pass"} == {
        "api models", "api chat", "api chat, stream", "api completion", "api completion, stream",
    }  # fmt: skip
    record = host.measured(repeats=2)
    assert {(each.verdict, each.tokens, each.foreign) for each in record.runs} == {("ok", 64, 0)}
    assert all(each.decode_tok_s for each in record.runs)


def test_without_workers_the_placement_is_not_proven(host: Host) -> None:
    run = host.deploy("checks/placement.py")
    assert run.code != 0
    assert run.checks["placement"]["workers of node 0"]["seen"] == "none"


def test_a_killed_one_comes_back(host: Host) -> None:
    before = host.main()
    host.machine.run(f"kill -9 $({CHILD})", sudo=True)
    host.wait_until(lambda: host.main() not in ("0", before) and host.serves())
    run = host.deploy("checks/server.py")
    assert run.code == 0, run.said
