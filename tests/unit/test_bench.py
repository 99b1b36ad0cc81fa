"""The benches: what they measure exists. Nothing is timed here."""

import os
from pathlib import Path

import pytest

from bench import overlay, probe, rerun, sshd
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


KEPT = range(6, 0, -1)


def test_a_straight_line_is_seen_as_one() -> None:
    found = overlay.line(KEPT, [[scale * (50 + 100 * count) for scale in (1, 2, 1)] for count in KEPT])
    assert found.each == pytest.approx(100)
    assert (found.fixed.median, found.fixed.low, found.fixed.high) == (0.077, 0.077, 0.077)  # 50 of 650
    assert found.farthest == pytest.approx(0, abs=1e-9)
    assert found.r2 == pytest.approx(1)


@pytest.mark.parametrize(("times", "r2", "farthest"), [
    ((600, 600, 600, 300, 300, 300), 0.771, 0.186),  # in steps
    ((600, 500, 400, 300, 200, 400), 0.571, 0.238),  # one is off
])  # fmt: skip
def test_what_is_no_line_is_seen_as_none(times: tuple[int, ...], r2: float, farthest: float) -> None:
    found = overlay.line(KEPT, [[each] * 10 for each in times])
    assert (found.r2, found.farthest) == pytest.approx((r2, farthest), abs=0.001)
    assert "R2 0." in str(found)
