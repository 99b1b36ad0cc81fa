import fnmatch
from fnmatch import fnmatchcase

import pytest

from ktfleet import plan, recipes, verdict
from ktfleet.config import Hugepages, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import Plan, files, places
from ktfleet.plan.settings import GOVERNOR, NODE_HUGEPAGES, TABLE, Writer
from ktfleet.verdict import Verdict
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
EVERYTHING = Workstation(kernel_command_line=("mitigations", "transparent_hugepage"))
PLAN = plan.make(workstation(), EVERYTHING, RECIPE)
CONVERGED = converged(PLAN)


def bad(state: HostState | None, made: Plan = PLAN) -> list[Verdict]:
    return [judged for judged in verdict.drift(made, state) if not judged.good]


def without(state: HostState, key: str, reason: str) -> HostState:
    """The same host, but the setting could not be read, for that reason."""
    gone = {path for path in (*state.sysctl, *state.sysfs) if fnmatchcase(path, key)}
    return state.model_copy(
        update={
            "sysctl": {k: v for k, v in state.sysctl.items() if k not in gone},
            "sysfs": {k: v for k, v in state.sysfs.items() if k not in gone},
            "unreadable": {key: reason},
        }
    )


def test_a_converged_host_passes_everything() -> None:
    found = verdict.drift(PLAN, CONVERGED)
    assert {judged.result for judged in found} == {"pass"}
    assert {judged.key for judged in found} == {
        *(row.key for row in TABLE), *files.paths(), places.BOOT_UNIT_ENABLED,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["kernel.numa_balancing", "vm.zone_reclaim_mode", "vm.swappiness"])
def test_a_value_changed_by_hand_fails_exactly_its_row(name: str) -> None:
    (judged,) = bad(CONVERGED.model_copy(update={"sysctl": {**CONVERGED.sysctl, name: "77"}}))
    assert (judged.key, judged.result, judged.seen) == (name, "fail", "77")
    assert str(judged).startswith(f"{name}: seen 77, wanted {judged.wanted}; run deploy.py again. Why: ")
    assert judged.why in str(judged)


FIRST_OF_EACH = [min(fnmatch.filter(CONVERGED.sysfs, row.key)) for row in TABLE if row.writer is Writer.SYSFS]


@pytest.mark.parametrize("path", FIRST_OF_EACH)
def test_one_cpu_or_node_that_differs_is_named(path: str) -> None:
    (judged,) = bad(CONVERGED.model_copy(update={"sysfs": {**CONVERGED.sysfs, path: "x"}}))
    assert judged.result == "fail"
    assert judged.seen == "x" if "*" not in judged.key else judged.seen.startswith(f"x at {path} (of ")


def test_several_places_are_counted() -> None:
    others = {path: "powersave" for path in CONVERGED.sysfs if "scaling_governor" in path}
    (judged,) = bad(CONVERGED.model_copy(update={"sysfs": {**CONVERGED.sysfs, **others}}))
    assert judged.seen == "powersave at /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor and 79 more (of 80)"


@pytest.mark.parametrize("key", [GOVERNOR, NODE_HUGEPAGES])
def test_a_setting_in_some_places_only_is_inconclusive(key: str) -> None:
    first = min(fnmatch.filter(CONVERGED.sysfs, key))
    (judged,) = bad(CONVERGED.model_copy(update={"sysfs": {k: v for k, v in CONVERGED.sysfs.items() if k != first}}))
    assert (judged.key, judged.result) == (key, "inconclusive")
    assert judged.why == f"it is missing in 1 places that should have it, as {first}"


def test_a_wanted_pool_that_the_kernel_lacks_fails() -> None:
    made = plan.make(workstation(), Workstation(hugepages=Hugepages(policy="hugetlb")), RECIPE)
    (judged,) = bad(without(converged(made), NODE_HUGEPAGES, "no readable match"), made)
    assert (judged.result, judged.seen) == ("fail", "no such setting on this host")


def test_a_parameter_that_the_next_boot_will_not_have_fails() -> None:
    boot = CONVERGED.boot.model_copy(update={"next_cmdline": "transparent_hugepage=always"})
    (judged,) = bad(CONVERGED.model_copy(update={"boot": boot}))
    assert (judged.key, judged.seen) == ("mitigations", "off now, but not in the generated grub.cfg")


def test_an_unknown_next_boot_is_inconclusive() -> None:
    boot = CONVERGED.boot.model_copy(update={"next_cmdline": None})
    assert [judged.result for judged in bad(CONVERGED.model_copy(update={"boot": boot}))] == ["inconclusive"] * 2


def test_an_opt_in_taken_back_that_still_runs_fails() -> None:
    made = plan.make(workstation(), Workstation(), RECIPE)
    state = converged(made)
    kernel = state.kernel.model_copy(update={"cmdline": "ro mitigations=off"})
    running = state.model_copy(update={"kernel": kernel})
    assert bad(running, made) == [], "the owner's own value is his"
    (judged,) = bad(running.model_copy(update={"before": {"mitigations": {}}}), made)
    assert (judged.key, judged.seen, judged.wanted) == (
        "mitigations", "off in /proc/cmdline", "what it was before ktfleet",
    )  # fmt: skip


def test_a_parameter_that_did_not_arrive_fails() -> None:
    kernel = CONVERGED.kernel.model_copy(update={"cmdline": "ro transparent_hugepage=always"})
    (judged,) = bad(CONVERGED.model_copy(update={"kernel": kernel}))
    assert (judged.key, judged.seen) == ("mitigations", "nothing in /proc/cmdline")


def test_an_unread_command_line_is_inconclusive() -> None:
    kernel = CONVERGED.kernel.model_copy(update={"cmdline": None})
    assert [judged.result for judged in bad(CONVERGED.model_copy(update={"kernel": kernel}))] == ["inconclusive"] * 2


@pytest.mark.parametrize("row", [row for row in TABLE if row.writer in (Writer.SYSCTL, Writer.SYSFS)])
def test_only_a_setting_that_may_be_missing_is_skipped(row: plan.settings.Row) -> None:
    (judged,) = [j for j in verdict.drift(PLAN, without(CONVERGED, row.key, "no such file")) if j.result != "pass"]
    assert (judged.key, judged.result) == (row.key, "skipped" if row.absent else "fail")


@pytest.mark.parametrize("key", [GOVERNOR, NODE_HUGEPAGES, "vm.swappiness"])
@pytest.mark.parametrize("reason", ["permission denied", "input/output error"])
def test_what_could_not_be_read_is_never_a_pass_or_a_skip(key: str, reason: str) -> None:
    (judged,) = bad(without(CONVERGED, key, reason))
    assert (judged.key, judged.result) == (key, "inconclusive")
    assert reason in str(judged)


@pytest.mark.parametrize("path", files.paths())
def test_a_changed_or_missing_file_fails(path: str) -> None:
    for content, seen in (("other", "other content"), (None, "no such file")):
        (judged,) = bad(CONVERGED.model_copy(update={"files": {**CONVERGED.files, path: content}}))
        assert (judged.key, judged.result, judged.seen) == (path, "fail", seen)


def test_one_unread_cpu_among_good_ones_is_inconclusive() -> None:
    path = GOVERNOR.replace("cpu*", "cpu7")
    (judged,) = bad(CONVERGED.model_copy(update={"unreadable": {path: "input/output error"}}))
    assert (judged.key, judged.result) == (GOVERNOR, "inconclusive")


def test_what_was_never_probed_is_inconclusive() -> None:
    found = verdict.drift(PLAN, HostState(schema=1))
    assert {judged.result for judged in found} == {"inconclusive"}


def test_an_unread_file_is_inconclusive() -> None:
    path = places.SYSCTLS
    update = {"files": {**CONVERGED.files, path: None}, "unreadable": {path: "permission denied"}}
    (judged,) = bad(CONVERGED.model_copy(update=update))
    assert (judged.key, judged.result) == (path, "inconclusive")


def test_a_drop_in_that_should_be_gone_fails() -> None:
    made = plan.make(workstation(), Workstation(), RECIPE)
    state = converged(made)
    (judged,) = bad(state.model_copy(update={"files": {**state.files, places.COMMAND_LINE: "x"}}), made)
    assert (judged.seen, judged.wanted) == ("other content", "no such file")


def test_a_disabled_unit_fails() -> None:
    (judged,) = bad(CONVERGED.model_copy(update={"links": {**CONVERGED.links, places.BOOT_UNIT_ENABLED: None}}))
    assert judged.seen == "not enabled"


MASKS = [row.key for row in TABLE if row.writer is Writer.MASK]


@pytest.mark.parametrize("unit", MASKS)
@pytest.mark.parametrize(("target", "reason"), [
    (None, "no such file"), (None, "not a symlink"), ("/lib/systemd/system/mine.target", None),
])  # fmt: skip
def test_a_unit_that_is_not_masked_fails(unit: str, target: str | None, reason: str | None) -> None:
    path = places.unit_file(unit)
    update = {"links": {**CONVERGED.links, path: target}, "unreadable": {path: reason} if reason else {}}
    (judged,) = bad(CONVERGED.model_copy(update=update))
    assert (judged.key, judged.result, judged.seen) == (unit, "fail", "not masked")


def test_an_unread_unit_is_inconclusive() -> None:
    path = places.unit_file(MASKS[0])
    update = {"links": {**CONVERGED.links, path: None}, "unreadable": {path: "permission denied"}}
    assert [judged.result for judged in bad(CONVERGED.model_copy(update=update))] == ["inconclusive"]


def test_a_host_that_does_not_answer_is_inconclusive() -> None:
    assert [judged.result for judged in bad(None)] == ["inconclusive"]


def test_the_summary_counts_bad_ones_first() -> None:
    assert verdict.summary(verdict.drift(PLAN, CONVERGED)) == "23 pass"
    state = CONVERGED.model_copy(update={"sysctl": {**CONVERGED.sysctl, "vm.swappiness": "60"}})
    assert verdict.summary(verdict.drift(PLAN, state)) == "1 fail, 22 pass"
    assert verdict.summary(()) == "nothing was checked"
