"""What a trial of the placement compares."""

from __future__ import annotations

from ktfleet.measure.trial import ratio
from ktfleet.plan import trial
from tests.states import workstation


def test_the_plan_comes_first_and_each_other_arm_breaks_one_rule() -> None:
    plan, everywhere, on_worker, twice = trial.losing(workstation())
    assert (plan.workers, plan.others) == ((20, 20), tuple(range(40, 80)))
    assert (everywhere.workers, len(everywhere.others)) == ((20, 20), 80)
    assert (on_worker.workers, on_worker.others) == ((20, 20), (0,))
    assert twice.workers == (40, 40)


def test_without_hyperthreads_all_cores_are_one_too_many() -> None:
    plan, everywhere, *_ = trial.losing(workstation(threads=1))
    assert (plan.workers, plan.others, everywhere.workers) == ((19, 19), (19, 39), (20, 20))


def test_the_others_run_on_siblings_on_kept_cores_or_anywhere() -> None:
    siblings, kept, anywhere = trial.others(workstation())
    assert (siblings.workers, siblings.others) == ((20, 20), tuple(range(40, 80)))
    assert (kept.workers, sorted(kept.others)) == ((19, 19), [19, 39, 59, 79])
    assert len(anywhere.others) == 80
    assert trial.others(workstation(threads=1))[0].others == (19, 39)


def test_one_core_a_node_shows_nothing() -> None:
    assert trial.possible(workstation())
    assert not trial.possible(workstation(cores=1))


def test_a_ratio_has_its_interval() -> None:
    found = ratio([4.0, 4.1, 3.9, 4.2, 4.0, 4.1, 3.9, 4.3, 4.0, 4.1])
    assert found["low"] <= found["median"] <= found["high"]
    assert 3.9 <= found["low"] <= found["high"] <= 4.3
