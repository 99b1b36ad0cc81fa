import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import plan, recipes
from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import readback
from ktfleet.plan.settings import GOVERNOR, NODE_HUGEPAGES, TABLE, THP_ENABLED, Row
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
OPTED_IN = Workstation(kernel_command_line=("mitigations", "transparent_hugepage"))


def row(key: str) -> Row:
    return next(row for row in TABLE if row.key == key)


def with_cmdline(running: str, coming: str) -> HostState:
    state = workstation()
    return state.model_copy(
        update={
            "kernel": state.kernel.model_copy(update={"cmdline": running}),
            "boot": state.boot.model_copy(update={"next_cmdline": coming, "drop_ins": {"/etc/default/grub": "x"}}),
        }
    )


@pytest.mark.parametrize(("text", "value"), [
    ("always [madvise] never", "madvise"), ("[always] madvise never", "always"), ("0", "0"), ("0\n", "0"),
    ("4096\t131072 6291456", "4096 131072 6291456"), ("", ""), ("performance\n", "performance"),
])  # fmt: skip
def test_normalised(text: str, value: str) -> None:
    assert readback.normalised(text) == value


@pytest.mark.parametrize(("cmdline", "value"), [
    ("ro quiet mitigations=off", "off"), ("mitigations=off mitigations=auto", "auto"), ("xmitigations=off", None),
    ("mitigations", ""), ('dyndbg="file a +p" mitigations=off', "off"), ('odd" mitigations=off', "off"), ("", None),
    (None, None),
])  # fmt: skip
def test_parameter(cmdline: str | None, value: str | None) -> None:
    assert readback.parameter(cmdline, "mitigations") == value


@given(st.text())
def test_any_command_line_can_be_read(cmdline: str) -> None:
    readback.parameter(cmdline, "mitigations")


def test_values_of_every_matching_place() -> None:
    assert len(readback.values(row(NODE_HUGEPAGES), workstation())) == 2
    assert len(readback.values(row(GOVERNOR), workstation())) == 3
    assert readback.values(row(THP_ENABLED), workstation()) == {THP_ENABLED: "madvise"}
    assert readback.values(row("vm.swappiness"), workstation()) == {"vm.swappiness": "60"}
    assert readback.values(row("mitigations"), workstation()) == {}


def test_one_place_that_differs_is_enough() -> None:
    state = workstation()
    path = NODE_HUGEPAGES.replace("node*", "node1")
    setting = next(s for s in plan.make(state, Workstation(), RECIPE).settings if s.key == NODE_HUGEPAGES)
    assert not readback.differs(setting, state)
    assert readback.differs(setting, state.model_copy(update={"sysfs": {**state.sysfs, path: "1"}}))


@pytest.mark.parametrize(("running", "coming", "config", "reasons"), [
    ("ro", "ro", Workstation(), 0),
    ("ro", "ro", OPTED_IN, 2),
    ("ro", "ro mitigations=off transparent_hugepage=always", OPTED_IN, 2),
    ("ro mitigations=off transparent_hugepage=always", "ro", OPTED_IN, 0),
    ("ro mitigations=off", "ro", Workstation(), 1),
    ("BOOT_IMAGE=x ro splash vt.handoff=7", "ro", Workstation(), 0),
])  # fmt: skip
def test_reboot_reasons(running: str, coming: str, config: Workstation, reasons: int) -> None:
    state = with_cmdline(running, coming)
    assert len(readback.reboot_reasons(plan.make(state, config, RECIPE).settings, state)) == reasons


def test_a_reason_shows_both_values() -> None:
    state = with_cmdline("ro mitigations=auto", "ro mitigations=off")
    made = plan.make(state, Workstation(kernel_command_line=("mitigations",)), RECIPE)
    assert readback.reboot_reasons(made.settings, state) == ("mitigations: running auto, next boot off",)


def test_a_replaced_command_line_is_named_with_the_files_that_could_do_it() -> None:
    state = with_cmdline("ro", "ro quiet")
    made = plan.make(state, Workstation(kernel_command_line=("mitigations",)), RECIPE)
    assert [str(problem) for problem in readback.overridden(made.settings, state)] == [
        "the next boot would not get mitigations=off: seen nothing in the generated grub.cfg, wanted off; "
        "find the file that replaces it: /etc/default/grub"
    ]
