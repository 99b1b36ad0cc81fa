"""The lab is what it says: the wanted topology, a real Debian and a real GRUB."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.lab import __main__ as command_line
from tests.lab import errors
from tests.lab.errors import LabError
from tests.lab.image import Image, cache_folder
from tests.lab.machine import Machine
from tests.lab.topology import LAB, REAL, Topology


def _values(topology: Topology, option: str) -> list[str]:
    arguments = topology.qemu_arguments()
    return [value for name, value in pairwise(arguments) if name == option]


def test_the_lab_has_two_sockets_with_a_node_each() -> None:
    assert _values(LAB, "-smp") == ["8,sockets=2,cores=2,threads=2"]
    assert _values(LAB, "-m") == ["4096M"]
    assert _values(LAB, "-object") == [f"memory-backend-ram,id=node{node},size=2048M" for node in (0, 1)]
    assert _values(LAB, "-numa") == [
        "node,nodeid=0,cpus=0-3,memdev=node0",
        "node,nodeid=1,cpus=4-7,memdev=node1",
        "dist,src=0,dst=1,val=21",
    ]


def test_the_real_one_has_80_cpus() -> None:
    assert _values(REAL, "-smp") == ["80,sockets=2,cores=20,threads=2"]
    assert _values(REAL, "-numa")[1] == "node,nodeid=1,cpus=40-79,memdev=node1"


def test_sub_numa_clustering_makes_near_nodes() -> None:
    clustered = Topology(nodes_per_socket=2, node_mib=1024)
    assert _values(clustered, "-numa")[:4] == [
        f"node,nodeid={n},cpus={2 * n}-{2 * n + 1},memdev=node{n}" for n in range(4)
    ]
    near = {"dist,src=0,dst=1,val=11", "dist,src=2,dst=3,val=11"}
    assert {value for value in _values(clustered, "-numa") if value.endswith("=11")} == near
    assert sum(value.endswith("=21") for value in _values(clustered, "-numa")) == 4


def test_a_node_may_have_no_memory_or_another_size() -> None:
    empty = Topology(node_mib=(2048, 0))
    assert _values(empty, "-m") == ["2048M"]
    assert _values(empty, "-numa")[1] == "node,nodeid=1,cpus=4-7"
    uneven = Topology(node_mib=(3072, 1024))
    assert [value.rpartition("=")[2] for value in _values(uneven, "-object")] == ["3072M", "1024M"]


def test_hyperthreads_may_be_off() -> None:
    assert _values(Topology(threads=1), "-smp") == ["4,sockets=2,cores=2,threads=1"]


@pytest.mark.parametrize(
    "wrong", [{"sockets": 0}, {"nodes_per_socket": 3}, {"node_mib": (1024,)}, {"node_mib": (0, 2048)}]
)
def test_an_impossible_machine_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"seen .*, wanted .*; "):
        Topology(**wrong)


def test_all_missing_programs_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_present", lambda need: need in ("ssh", "unshare", "setpriv", "ssh-keygen"))
    with pytest.raises(LabError, match=r"no qemu-img.*sudo apt-get install .*mmdebstrap qemu-system-x86 qemu-utils"):
        errors.require_programs()


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.delenv("KTFLEET_LAB_CACHE", raising=False)
    assert cache_folder() == Path("/elsewhere/ktfleet/lab")
    monkeypatch.setenv("KTFLEET_LAB_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_an_unknown_machine_is_one_line_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "STATE", tmp_path)
    assert command_line.main(["down", "--name", "nobody"]) == 1
    assert capsys.readouterr().err.startswith("there is no machine nobody: seen none, wanted nobody; run: ")


@pytest.mark.lab
def test_a_machine_that_cannot_start_says_why(tmp_path: Path, lab_image: Image) -> None:
    too_large = Topology(node_mib=2**24)
    with pytest.raises(LabError, match=r"did not start: seen .*, wanted a running qemu; read "):
        Machine(tmp_path / "large", lab_image, too_large).start()
