import fnmatch
from fnmatch import fnmatchcase
from typing import Any

import pytest

from ktfleet import plan, recipes, verdict
from ktfleet.config import Data, Gpu, Hugepages, Key, Server, Workstation
from ktfleet.host.state import HostState, Unit
from ktfleet.plan import Plan, files, places
from ktfleet.plan.overlay.proven import KEY as OVERLAY
from ktfleet.plan.row import Row, Writer
from ktfleet.plan.settings import (
    BANNED_CPUS,
    COMPACTION,
    GLIBC_TUNABLES,
    GOVERNOR,
    MEMORY_SWAP_MAX,
    NODE_HUGEPAGES,
    TABLE,
    TIME_SYNC,
    WAKE_LATENCY,
)
from ktfleet.plan.stack.proven import KEY
from ktfleet.sources import Weights
from ktfleet.verdict import Verdict
from tests.states import converged, serving, with_data_disk, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
EVERYTHING = Workstation(
    gpu=Gpu(power_limit_w=450),
    kernel_command_line=("mitigations", "transparent_hugepage"),
    data=Data(mount="/srv/models", label="models"),
    weights=Weights(),
    server=Server(host="0.0.0.0", key=Key(command=("true",))),
)
PLAN = plan.make(workstation(), EVERYTHING, RECIPE)
SERVED = ("server's start", "server is ready", "server's front")
CONVERGED = serving(PLAN, with_data_disk(converged(PLAN), PLAN))


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
        *(row.key for row in TABLE if row.key != GLIBC_TUNABLES), *files.paths(), places.BOOT_UNIT_ENABLED,
        places.STACK_PROGRAM, KEY, OVERLAY, places.SERVER_PROGRAM, places.SERVER_ENABLED, places.FRONT_ENABLED, *SERVED,
        places.PERSISTENCED_ENABLED, places.POWER_LIMIT_ENABLED, "packages of driver and toolkit",
        "account ktfleet", places.WEIGHTS, "data disk", "checkpoint", "converted weights",
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
def test_only_a_setting_that_may_be_missing_is_skipped(row: Row) -> None:
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


SERVER_KEYS = [setting.key for setting in PLAN.of(Writer.SERVER)]


def test_what_only_the_server_has_is_skipped_until_it_runs() -> None:
    stopped = CONVERGED.model_copy(update={"units": {**CONVERGED.units, places.SERVER_UNIT: Unit(active=False)}})
    found = verdict.drift(PLAN, stopped)
    skipped = {judged.key: judged for judged in found if judged.result == "skipped"}
    assert {judged.key for judged in found if judged.result == "fail"} == {"server's start"}
    assert set(skipped) == set(SERVER_KEYS)
    assert {judged.why for judged in skipped.values()} == {"the server does not run: it takes effect at its next start"}


@pytest.mark.parametrize(("update", "key", "seen"), [
    ({"cpu_dma_latency_us": 2_000_000_000}, WAKE_LATENCY, "2000000000"),
    ({"cpu_dma_latency_us": None}, WAKE_LATENCY, "not set"),
    ({"texts": {**CONVERGED.texts, places.COMPACTED: None}}, COMPACTION, "not set"),
    ({"units": {**CONVERGED.units, places.SERVER_UNIT: Unit(active=True)}}, MEMORY_SWAP_MAX, "not set"),
    ({"units": {**CONVERGED.units, places.SERVER_UNIT: Unit(active=True, memory_swap_max="1024")}},
     MEMORY_SWAP_MAX, "1024"),
    ({"units": {**CONVERGED.units, places.IRQBALANCE_UNIT: Unit(active=True)}}, BANNED_CPUS, "not set"),
    ({"apt": {**(CONVERGED.apt or {}), "DPkg::Lock::Timeout": "0"}}, "DPkg::Lock::Timeout", "0"),
    ({"journald": {"SystemMaxUse": "4G"}}, "SystemMaxUse", "4G"),
    ({"links": {**CONVERGED.links, **dict.fromkeys(places.TIME_SERVICES)}}, TIME_SYNC, "not enabled"),
])  # fmt: skip
def test_what_runs_otherwise_fails_its_row(update: dict[str, Any], key: str, seen: str) -> None:
    (judged,) = bad(CONVERGED.model_copy(update=update))
    assert (judged.key, judged.result, judged.seen) == (key, "fail", seen)


def test_a_lower_latency_and_the_owners_own_words_are_fine() -> None:
    held = "Unattended-Upgrade::Package-Blacklist"
    apt = {**(CONVERGED.apt or {}), held: f"mine {(CONVERGED.apt or {})[held]} vim"}
    assert bad(CONVERGED.model_copy(update={"cpu_dma_latency_us": 0, "apt": apt})) == []
    less = {**apt, held: "mine nvidia-"}
    assert [judged.key for judged in bad(CONVERGED.model_copy(update={"apt": less}))] == [held]


def test_the_tunable_of_a_pool_is_read_from_the_running_server() -> None:
    made = plan.make(workstation(), Workstation(hugepages=Hugepages(policy="hugetlb")), RECIPE)
    state = serving(made, converged(made))
    assert bad(state, made) == []
    server = state.units[places.SERVER_UNIT].model_copy(update={"environment": {}})
    (judged,) = bad(state.model_copy(update={"units": {**state.units, places.SERVER_UNIT: server}}), made)
    assert (judged.key, judged.seen, judged.do) == (GLIBC_TUNABLES, "not set", "restart the server")


def test_without_irqbalance_its_row_is_skipped() -> None:
    units = {**CONVERGED.units, places.IRQBALANCE_UNIT: Unit(active=False)}
    found = verdict.drift(PLAN, CONVERGED.model_copy(update={"units": units}))
    assert [judged.key for judged in found if judged.result == "skipped"] == [BANNED_CPUS]


@pytest.mark.parametrize(("update", "keys"), [
    ({"units": {}}, {BANNED_CPUS, *SERVER_KEYS, "server's start", "server's front"}),
    ({"apt": None}, {setting.key for setting in PLAN.of(Writer.APT)}),
    ({"journald": None}, {"SystemMaxUse"}),
    ({"unreadable": {"/etc/apt/apt.conf.d/20mine": "permission denied"}}, {s.key for s in PLAN.of(Writer.APT)}),
    ({"unreadable": {f"/sys/fs/cgroup/system.slice/{places.SERVER_UNIT}/memory.swap.max": "busy"}},
     {*SERVER_KEYS, "server's start"}),
])  # fmt: skip
def test_what_was_not_read_is_inconclusive(update: dict[str, Any], keys: set[str]) -> None:
    found = bad(CONVERGED.model_copy(update=update))
    assert ({judged.key for judged in found}, {judged.result for judged in found}) == (keys, {"inconclusive"})


def test_a_host_that_does_not_answer_is_inconclusive() -> None:
    assert [judged.result for judged in bad(None)] == ["inconclusive"]


def test_the_summary_counts_bad_ones_first() -> None:
    assert verdict.summary(verdict.drift(PLAN, CONVERGED)) == "71 pass"
    state = CONVERGED.model_copy(update={"sysctl": {**CONVERGED.sysctl, "vm.swappiness": "60"}})
    assert verdict.summary(verdict.drift(PLAN, state)) == "1 fail, 70 pass"
    assert verdict.summary(()) == "nothing was checked"


@pytest.mark.parametrize("link", [places.PERSISTENCED_ENABLED, places.POWER_LIMIT_ENABLED])
def test_a_unit_of_the_card_that_does_not_start_at_boot_fails(link: str) -> None:
    (judged,) = bad(CONVERGED.model_copy(update={"links": {**CONVERGED.links, link: None}}))
    assert (judged.key, judged.result, judged.seen) == (link, "fail", "not enabled")


@pytest.mark.parametrize(("update", "result", "seen"), [
    ({"installed": {}}, "fail", "no linux-image-amd64, linux-headers-amd64"),
    ({"unfinished": ("gcc", "g++")}, "fail", "half installed gcc, g++"),
    ({"interrupted": None}, "inconclusive", "nothing"),
])  # fmt: skip
def test_packages_that_are_missing_fail(update: dict[str, Any], result: str, seen: str) -> None:
    packages = CONVERGED.packages.model_copy(update=update)
    (judged,) = bad(CONVERGED.model_copy(update={"packages": packages}))
    assert (judged.key, judged.result) == ("packages of driver and toolkit", result)
    assert judged.seen.startswith(seen)


def test_without_a_wanted_card_its_packages_are_not_judged() -> None:
    bare = plan.make(CONVERGED, Workstation(gpu=None), RECIPE)
    keys = {judged.key for judged in verdict.drift(bare, CONVERGED)}
    assert keys & {places.PERSISTENCED_ENABLED, "packages of driver and toolkit"} == set()
