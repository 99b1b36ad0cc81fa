import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import plan, recipes
from ktfleet.config import Hugepages, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import changes, command_line
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
BOTH = ("mitigations", "transparent_hugepage")
OURS = "mitigations=off transparent_hugepage=always"
RECORDED = {"mitigations": {}, "transparent_hugepage": {}}
"""What before.json says when neither was given before ktfleet."""


def host(running: str, coming: str | None, before: dict[str, dict[str, str]] | None = None) -> HostState:
    state = workstation()
    return state.model_copy(
        update={
            "kernel": state.kernel.model_copy(update={"cmdline": running}),
            "boot": state.boot.model_copy(update={"next_cmdline": coming, "drop_ins": {"/etc/default/grub": "x"}}),
            "before": before or {},
        }
    )


def reasons(state: HostState, *asked: str) -> tuple[str, ...]:
    return command_line.reboot_reasons(plan.make(state, Workstation(kernel_command_line=asked), RECIPE), state)


@pytest.mark.parametrize(("cmdline", "value"), [
    ("ro quiet mitigations=off", "off"), ("mitigations=off mitigations=auto", "auto"), ("xmitigations=off", None),
    ("mitigations", ""), ("ro -- mitigations=off", None),
    ('dyndbg="file a +p" mitigations=off', "off"), ('odd" mitigations=off', "off"), ("", None),
    (None, None),
])  # fmt: skip
def test_parameter(cmdline: str | None, value: str | None) -> None:
    assert command_line.parameter(cmdline, "mitigations") == value


@given(st.text())
def test_any_command_line_can_be_read(cmdline: str) -> None:
    command_line.parameter(cmdline, "mitigations")


@pytest.mark.parametrize(("running", "coming"), [
    ("ro", "ro"),
    ("ro", f"ro {OURS}"),
    ("ro mitigations=auto transparent_hugepage=never", f"ro {OURS}"),
])  # fmt: skip
def test_a_wanted_parameter_that_does_not_run_is_a_reason(running: str, coming: str) -> None:
    assert len(reasons(host(running, coming), *BOTH)) == 2


@pytest.mark.parametrize("coming", ["ro", f"ro {OURS}", None])
def test_a_wanted_parameter_that_runs_is_none(coming: str | None) -> None:
    assert reasons(host(f"ro {OURS}", coming), *BOTH) == ()


@pytest.mark.parametrize("coming", ["ro", "ro mitigations=auto", "xen.cfg placeholder", None])
@pytest.mark.parametrize("running", ["ro", "ro mitigations=off", "ro mitigations=auto transparent_hugepage=never"])
def test_the_owners_own_parameters_are_never_a_reason(running: str, coming: str | None) -> None:
    """Whatever grub.cfg says, or does not: without our record the value is his, and a reboot would change nothing."""
    state = host(running, coming)
    assert reasons(state) == ()
    made = plan.make(state, Workstation(), RECIPE)
    assert changes.write_command_line(made, state) == ()


def test_what_the_owner_had_before_us_stays_his() -> None:
    before = {"mitigations": {"mitigations": "off"}}
    assert reasons(host("ro mitigations=off", "ro", before)) == ()


def test_an_opt_in_taken_back_needs_its_reboot_when_the_next_boot_is_clean() -> None:
    assert reasons(host(f"ro {OURS}", "ro", RECORDED)) == (
        "transparent_hugepage: running always, next boot nothing",
        "mitigations: running off, next boot nothing",
    )
    assert reasons(host(f"ro {OURS}", None, RECORDED)) == (), "an unknown next boot is no reason"
    assert reasons(host("ro", "ro", RECORDED)) == ()


def test_an_opt_in_taken_back_while_its_value_changes_is_still_ours() -> None:
    state = host("ro transparent_hugepage=always", "ro", RECORDED)
    made = plan.make(state, Workstation(hugepages=Hugepages(policy="off")), RECIPE)
    assert command_line.reboot_reasons(made, state) == ("transparent_hugepage: running always, next boot nothing",)


def test_names_with_a_dash_are_the_same() -> None:
    assert command_line.parameter("transparent-hugepage=never", "transparent_hugepage") == "never"


def test_an_opt_out_that_was_cut_before_update_grub_is_finished() -> None:
    state = host(f"ro {OURS}", f"ro {OURS}", RECORDED)
    made = plan.make(state, Workstation(), RECIPE)
    (command,) = changes.write_command_line(made, state)
    assert "update-grub" in command


def test_a_reason_shows_both_values() -> None:
    assert reasons(host("ro mitigations=auto", "ro mitigations=off"), "mitigations") == (
        "mitigations: running auto, next boot off",
    )


def test_a_replaced_command_line_is_named_with_the_files_that_could_do_it() -> None:
    state = host("ro", "ro quiet")
    made = plan.make(state, Workstation(kernel_command_line=("mitigations",)), RECIPE)
    assert [str(problem) for problem in command_line.overridden(made.settings, state)] == [
        "the next boot would not get mitigations=off: seen nothing in the generated grub.cfg, wanted off; "
        "find the file that replaces it: /etc/default/grub"
    ]
