import pytest

from ktfleet import plan, recipes
from ktfleet.config import HugepagePolicy, Hugepages, Workstation
from ktfleet.plan import settings
from ktfleet.plan.row import Writer
from ktfleet.plan.settings import TABLE, THP_DEFRAG, THP_ENABLED
from ktfleet.verdict import drift
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def wanted(**config: object) -> dict[str, str]:
    made = plan.make(workstation(), Workstation.model_validate(config), RECIPE)
    return {setting.key: setting.wanted for setting in made.settings}


def test_keys_are_unique_and_say_what_they_are() -> None:
    keys = [row.key for row in TABLE]
    assert len(set(keys)) == len(keys)
    for row in TABLE:
        assert row.key.startswith(("/sys/", "/proc/")) == (row.writer is Writer.SYSFS)


def test_every_row_gives_a_reason_and_a_source() -> None:
    assert all(len(row.why) > 60 and len(row.source) > 20 and row.effect for row in TABLE)


def test_nothing_goes_on_the_command_line_unasked() -> None:
    assert not set(settings.OPT_INS) & set(wanted())


@pytest.mark.parametrize("name", settings.OPT_INS)
def test_each_opt_in_is_taken_alone(name: str) -> None:
    assert set(wanted(kernel_command_line=(name,))) - set(wanted()) == {name}


@pytest.mark.parametrize(("policy", "enabled", "defrag"), [
    ("thp", "always", "always"), ("hugetlb", "madvise", "madvise"), ("off", "never", "madvise"),
])  # fmt: skip
def test_huge_pages_by_policy(policy: HugepagePolicy, enabled: str, defrag: str) -> None:
    found = wanted(hugepages=Hugepages(policy=policy), kernel_command_line=("transparent_hugepage",))
    assert (found[THP_ENABLED], found[THP_DEFRAG], found["transparent_hugepage"]) == (enabled, defrag, enabled)


def test_the_pool_of_each_node() -> None:
    assert wanted()[settings.NODE_HUGEPAGES] == "0"
    assert wanted(hugepages=Hugepages(policy="hugetlb", per_node=64))[settings.NODE_HUGEPAGES] == "64"


def test_the_plan_tells_each_row_once() -> None:
    told = plan.make(workstation(), Workstation(), RECIPE).to_json()["settings"]
    assert [row["key"] for row in told] == [
        row.key for row in TABLE if row.key not in (*settings.OPT_INS, settings.GLIBC_TUNABLES)
    ]
    assert all(row["why"] and row["source"] and row["wanted"] for row in told)


def test_the_uncore_is_held_at_the_highest_clock_that_this_host_tells() -> None:
    assert wanted()[settings.UNCORE_MIN] == "2400000"
    state = workstation()
    silent = state.model_copy(update={"sysfs": {k: v for k, v in state.sysfs.items() if "uncore" not in k}})
    made = plan.make(silent, Workstation(), RECIPE)
    judged = [verdict for verdict in drift(made, silent) if verdict.key == settings.UNCORE_MIN]
    assert [verdict.result for verdict in judged] == ["inconclusive"], "unread is not absent"
    absent = silent.model_copy(update={"unreadable": {settings.UNCORE_MIN: "no readable match"}})
    judged = [verdict for verdict in drift(made, absent) if verdict.key == settings.UNCORE_MIN]
    assert [verdict.result for verdict in judged] == ["skipped"]


def test_no_sysfs_value_has_a_blank() -> None:
    """It would break the file's VALUE PATH lines."""
    rows = [row for row in TABLE if row.writer is Writer.SYSFS]
    for policy in ("thp", "hugetlb", "off"):
        found = wanted(hugepages={"policy": policy})
        assert not any(set(" \t\n") & set(found[row.key] + row.key) for row in rows)


def test_an_opt_in_takes_every_value_that_it_is_given() -> None:
    for policy in ("thp", "hugetlb", "off"):
        found = wanted(hugepages={"policy": policy}, kernel_command_line=settings.OPT_INS)
        assert all(found[row.key] in row.takes for row in TABLE if row.opt_in)
