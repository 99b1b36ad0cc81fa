import pytest

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.plan import readback
from ktfleet.plan.row import Row
from ktfleet.plan.settings import GOVERNOR, NODE_HUGEPAGES, TABLE, THP_ENABLED, UNCORE_MIN
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def row(key: str) -> Row:
    return next(row for row in TABLE if row.key == key)


@pytest.mark.parametrize(("text", "value"), [
    ("always [madvise] never", "madvise"), ("[always] madvise never", "always"), ("0", "0"), ("0\n", "0"),
    ("4096\t131072 6291456", "4096 131072 6291456"), ("", ""), ("performance\n", "performance"),
])  # fmt: skip
def test_normalised(text: str, value: str) -> None:
    assert readback.normalised(text) == value


def test_values_of_every_matching_place() -> None:
    assert len(readback.values(row(NODE_HUGEPAGES), workstation())) == 2
    assert len(readback.values(row(GOVERNOR), workstation())) == 80
    assert readback.values(row(THP_ENABLED), workstation()) == {THP_ENABLED: "madvise"}
    assert readback.values(row("vm.swappiness"), workstation()) == {"vm.swappiness": "60"}
    assert readback.values(row("mitigations"), workstation()) == {}


def test_one_place_that_differs_is_enough() -> None:
    state = workstation()
    path = NODE_HUGEPAGES.replace("node*", "node1")
    setting = next(s for s in plan.make(state, Workstation(), RECIPE).settings if s.key == NODE_HUGEPAGES)
    assert not readback.differs(setting, state)
    assert readback.differs(setting, state.model_copy(update={"sysfs": {**state.sysfs, path: "1"}}))


def test_files_of_offline_cpus_do_not_count() -> None:
    state = workstation()
    half = state.model_copy(update={"cpus": state.cpus[:40], "unreadable": {GOVERNOR.replace("cpu*", "cpu77"): "busy"}})
    assert len(readback.values(row(GOVERNOR), half)) == 40
    assert readback.unread(row(GOVERNOR), half) is None


def test_a_place_that_its_neighbours_have_is_missed() -> None:
    state = workstation()
    gone = NODE_HUGEPAGES.replace("node*", "node1")
    lacking = state.model_copy(update={"sysfs": {k: v for k, v in state.sysfs.items() if k != gone}})
    assert readback.missing(row(NODE_HUGEPAGES), lacking) == [gone]
    assert readback.missing(row(NODE_HUGEPAGES), state) == []
    nowhere = state.model_copy(update={"sysfs": {}})
    assert readback.missing(row(NODE_HUGEPAGES), nowhere) == [], "a setting that the host lacks is not missed in places"


def test_a_package_without_an_uncore_clock_is_missed() -> None:
    state = workstation()
    lacking = state.model_copy(update={"sysfs": {k: v for k, v in state.sysfs.items() if "package_01" not in k}})
    assert readback.missing(row(UNCORE_MIN), lacking) == [UNCORE_MIN.replace("package_*_die_*", "package_01_die_00")]
