"""The benches: what they measure exists. Nothing is timed here."""

import os
from pathlib import Path

import pytest

from bench import probe, rerun, sshd
from ktfleet.plan.files import paths
from ktfleet.problem import Refused


def test_the_benches_can_be_imported() -> None:
    assert callable(probe.main)
    assert callable(rerun.main)


@pytest.mark.skipif(os.geteuid() != 0, reason="a folder of the tree is given to another user: only root can")
def test_the_workstation_of_the_bench_is_as_the_table_wants_it(tmp_path: Path) -> None:
    """A new kind of setting has to be written in converged_tree too; it refuses what differs."""
    made = rerun.converged_tree(tmp_path)
    assert len(made.cores.worker_cpus) == 2
    assert any((tmp_path / path.lstrip("/")).is_file() for path in paths())


def test_a_missing_sshd_is_said_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sshd, "_SBIN", str(tmp_path))
    wanted = "a program is missing: seen no sshd, wanted one to connect to; run: sudo apt-get install openssh-server"
    with pytest.raises(Refused, match=wanted), sshd.running(tmp_path / "sshd", {}):
        pass
