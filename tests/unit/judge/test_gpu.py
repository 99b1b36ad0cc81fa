"""The GPU's verdicts on captured and composed measurements."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.config import Gpu
from ktfleet.judge.gpu import begun, judge
from ktfleet.judge.gpu.log import APPLICATION, UNHEALTHY
from ktfleet.measure.gpu_record import Record
from ktfleet.verdict import Verdict
from tests.records import NAMES, plain, record

WANTED = Gpu()
HEALTHY = plain("healthy")
INFORMATION = {"gpu BAR1", "gpu power limit"}


def judged(data: dict[str, Any], wanted: Gpu = WANTED) -> dict[str, Verdict]:
    return {verdict.key: verdict for verdict in judge(wanted, Record.model_validate(data))}


def bad(data: dict[str, Any], wanted: Gpu = WANTED) -> dict[str, str]:
    return {key: verdict.result for key, verdict in judged(data, wanted).items() if not verdict.good}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    """The healthy host with one other value."""
    data = copy.deepcopy(HEALTHY)
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return data


def test_a_healthy_host_passes_everything() -> None:
    assert {verdict.result for verdict in judge(WANTED, record("healthy"))} == {"pass"}


def test_without_a_card_in_the_configuration_nothing_is_judged() -> None:
    (verdict,) = judge(None, record("healthy"))
    assert verdict.result == "skipped"
    assert "gpu = None" in str(verdict)


def test_without_a_measurement_nothing_passes() -> None:
    assert [verdict.result for verdict in (*judge(WANTED, None), *begun())] == ["inconclusive"] * 2


@pytest.mark.parametrize(("name", "fails"), [
    ("mismatch", {"gpu capability", "gpu driver versions", "gpu kernel log"}),
    ("proprietary", {"gpu capability", "gpu module licence", "gpu kernel log"}),
    ("nouveau", {"gpu capability", "gpu kernel driver", "gpu kernel log"}),
    ("secure_boot", {"gpu capability", "gpu kernel driver", "gpu Secure Boot", "gpu kernel log"}),
    ("x8", {"gpu PCIe width"}),
    ("xid79", {"gpu capability", "gpu Xids", "gpu kernel log"}),
    ("no_gpu", {"gpu capability", "gpu kernel driver", "gpu nvcc"}),
    ("no_rebar", set()),
    ("unsupported", set()),
])  # fmt: skip
def test_each_fault_fails_what_it_concerns(name: str, fails: set[str]) -> None:
    found = judged(plain(name))
    assert {key for key, verdict in found.items() if verdict.result == "fail"} == fails


@pytest.mark.parametrize(("name", "key", "remedy"), [
    ("mismatch", "gpu driver versions", "reboot; install nothing anew"),
    ("mismatch", "gpu capability", "reboot; nothing has to be reinstalled"),
    ("proprietary", "gpu capability", "the BIOS is not to blame"),
    ("nouveau", "gpu kernel driver", "blacklist nouveau and nova_core"),
    ("secure_boot", "gpu Secure Boot", "enrol the key"),
    ("x8", "gpu PCIe width", "seen x8, wanted x16; reseat the card"),
    ("xid79", "gpu Xids", "79 (the card fell off the bus, 1x at 0000:65:00)"),
    ("xid79", "gpu capability", "power the machine off and on"),
    ("no_gpu", "gpu capability", "NVML Shared Library Not Found"),
])  # fmt: skip
def test_a_fault_names_its_remedy(name: str, key: str, remedy: str) -> None:
    text = str(judged(plain(name))[key])
    assert remedy in text
    assert "\n" not in text


def test_a_card_without_rebar_passes_with_a_note() -> None:
    verdict = judged(plain("no_rebar"))["gpu BAR1"]
    assert (verdict.result, verdict.seen) == (
        "pass", "256 MiB of 32 GiB: Resizable BAR is off (BIOS could enable it)",
    )  # fmt: skip


def test_unsupported_getters_are_skipped_with_their_reason() -> None:
    found = judged(plain("unsupported"))
    skipped = {key for key, verdict in found.items() if verdict.result == "skipped"}
    assert skipped == {
        "gpu BAR1", "gpu persistence", "gpu memory clock", "gpu clock events", "gpu power limit", "gpu processes",
    }  # fmt: skip
    assert all("Not Supported" in found[key].why for key in skipped)
    assert found["gpu PCIe width"].result == "pass", "sysfs told it"


def test_another_reason_than_not_supported_is_inconclusive() -> None:
    data = changed("cards", 0, "persistence", to=None)
    data["unreadable"]["cards.0.persistence"] = "Unknown Error"
    assert bad(data) == {"gpu persistence": "inconclusive"}


def test_the_real_h200_is_seen_and_wanted_otherwise() -> None:
    verdict = judged(plain("h200"))["gpu capability"]
    assert verdict.result == "fail"
    assert verdict.difference == "gpu capability: seen NVIDIA H200, sm_90, wanted sm_120"


def test_the_real_h200_passes_where_it_is_wanted() -> None:
    found = judged(plain("h200"), Gpu(capability=(9, 0), toolkit="13.0"))
    assert found["gpu capability"].result == "pass"
    assert found["gpu driver"].seen == "580.159.04"
    assert not [str(verdict) for verdict in found.values() if verdict.result == "fail"]


def test_the_real_h200_runs_what_was_built_for_it_under_load() -> None:
    found = judged(plain("h200"), Gpu(capability=(9, 0), toolkit="13.0"))
    assert {key: found[key].result for key in ("gpu kernel", "gpu PCIe width", "gpu PCIe generation")} == {
        "gpu kernel": "pass", "gpu PCIe width": "pass", "gpu PCIe generation": "pass",
    }  # fmt: skip


def test_a_kernel_for_another_card_says_so_in_one_line() -> None:
    """Captured: built for sm_120a, started on an H200."""
    data = plain("h200_wrong_arch")
    data["cards"][0]["capability"] = [12, 0]  # as the card that the kernel was built for
    verdict = judged(data, Gpu(toolkit="13.0"))["gpu kernel"]
    assert verdict.result == "fail"
    assert "no kernel image is available" in str(verdict)


@pytest.mark.parametrize(("path", "value", "fails"), [
    (("driver", "nvml"), "570.86.10", {"gpu driver", "gpu driver versions"}),
    (("driver", "loaded"), "580.65.06", {"gpu driver versions"}),
    (("driver", "flavour"), "proprietary", {"gpu module licence"}),
    (("driver", "module", "license"), "NVIDIA", {"gpu module licence"}),
    (("driver", "pci"), [], {"gpu kernel driver"}),
    (("driver", "pci", 0, "driver"), "vfio-pci", {"gpu kernel driver"}),
    (("driver", "next_module"), {"kernel": "6.8.0-90-generic", "found": False}, {"gpu module for the next boot"}),
    (("driver", "next_module", "version"), "570.86.10", {"gpu module for the next boot"}),
    (("cards", 0, "busy", "link_generation"), 1, {"gpu PCIe generation"}),
    (("cards", 0, "max_link_generation"), 1, set()),
    (("cards", 0, "persistence"), False, {"gpu persistence"}),
    (("cards", 0, "busy", "memory_mhz"), 9001, {"gpu memory clock"}),
    (("cards", 0, "busy", "event_reasons"), 0x48, {"gpu clock events"}),
    (("cards", 0, "idle", "event_reasons"), 0x20, {"gpu clock events"}),
    (("cards", 0, "busy", "event_reasons"), 0x5, set()),
    (("cards", 0, "processes"), [{"pid": 1, "name": "Xorg", "unit": "gdm.service"}], {"gpu processes"}),
    (("cards", 0, "processes"), [{"pid": 1, "name": "python", "unit": "ktfleet-server.service"}], set()),
    (("cards", 0, "run", "result", "wrong"), 3, {"gpu kernel"}),
    (("cards", 0, "run", "result", "architecture"), 900, {"gpu kernel"}),
    (("kernel_build", "built"), False, {"gpu kernel"}),
    (("toolkit", "nvcc", "release"), "12.4", {"gpu nvcc"}),
    (("toolkit", "nvcc", "archs"), ["compute_90"], {"gpu nvcc"}),
    (("toolkit", "on_path"), [{"path": "/usr/bin/nvcc", "release": "11.8"}], {"gpu nvcc on PATH"}),
    (("toolkit", "on_path"), [{"path": "/opt/nvcc", "release": "13.0"}], set()),
    (("toolkit", "cuda_home"), "/usr", {"CUDA_HOME"}),
    (("toolkit", "cuda_home"), "/usr/", {"CUDA_HOME"}),
    (("toolkit", "cuda_home"), "/usr/local/cuda-12.9", set()),
])  # fmt: skip
def test_one_other_value_fails_exactly_its_verdict(path: tuple[str | int, ...], value: Any, fails: set[str]) -> None:
    assert bad(changed(*path, to=value)) == dict.fromkeys(fails, "fail")


def test_a_gen1_slot_is_no_excuse() -> None:
    data = changed("cards", 0, "busy", "link_generation", to=1)
    data["cards"][0]["max_link_generation"] = 1
    assert bad(data) == {"gpu PCIe generation": "fail"}


def test_without_load_an_idle_link_proves_nothing() -> None:
    data = changed("cards", 0, "busy", to=None)
    data["cards"][0]["run"] = data["kernel_build"] = None
    data["loaded"] = False
    keys = {"gpu PCIe generation", "gpu memory clock", "gpu clock events", "gpu kernel"}
    assert bad(data) == dict.fromkeys(keys, "inconclusive")


def test_a_power_limit_is_judged_when_it_is_asked_for() -> None:
    wanted = Gpu(power_limit_w=450)
    assert str(judged(HEALTHY, wanted)["gpu power limit"]).startswith(
        "gpu power limit: seen 575 W, wanted 450 W; nvidia-smi --power-limit=450"
    )
    assert not bad(changed("cards", 0, "power_limit_mw", to=450_000), wanted)


@pytest.mark.parametrize(("codes", "result"), [
    (APPLICATION, "pass"), (UNHEALTHY, "fail"), ([31, 79], "fail"),
    ([999], "inconclusive"), ([31, 999], "inconclusive"),
])  # fmt: skip
def test_an_xid_is_judged_by_its_class(codes: list[int], result: str) -> None:
    xids = [{"bus": "0000:65:00", "code": code, "count": 2} for code in codes]
    assert judged(changed("kernel_log", "xids", to=xids))["gpu Xids"].result == result


def test_classes_do_not_overlap() -> None:
    assert not set(APPLICATION) & set(UNHEALTHY)


def test_a_shortened_log_says_so() -> None:
    assert judged(changed("kernel_log", "whole", to=False))["gpu Xids"].seen == "none in what is left of the journal"


def test_an_old_error_is_history_once_the_card_answers() -> None:
    verdict = judged(changed("kernel_log", "lines", to=["NVRM: RmInitAdapter failed! (0x22:0x56:884)"]))[
        "gpu kernel log"
    ]
    assert verdict.result == "pass"
    assert "earlier in this boot" in verdict.seen


@pytest.mark.parametrize(("text", "part"), [
    ("host_config.h:137: error: #error -- unsupported GNU version! gcc versions later than 14", "g++-14"),
    ('error: exception specification is incompatible with previous function "sinpi"', "CUDA 13.0"),
    ("collect2: error: ld returned 1 exit status", "collect2: error: ld returned 1"),
    ("", "no word"),
])  # fmt: skip
def test_a_failed_compilation_is_translated(text: str, part: str) -> None:
    data = changed("kernel_build", "built", to=False)
    data["kernel_build"]["text"] = text
    verdict = judged(data)["gpu kernel"]
    assert verdict.result == "fail"
    assert part in str(verdict)


def test_a_run_without_machine_code_is_translated() -> None:
    text = "cudaGetLastError(): no kernel image is available for execution on the device"
    verdict = judged(changed("cards", 0, "run", to={"exit": 1, "result": None, "text": text}))["gpu kernel"]
    assert verdict.result == "fail"
    assert "no machine code for this card" in str(verdict)


def test_of_two_cards_each_is_judged_and_another_kind_is_left_alone() -> None:
    data = copy.deepcopy(HEALTHY)
    second = {**copy.deepcopy(data["cards"][0]), "index": 1, "bus": "0000:b3:00.0", "persistence": False}
    data["cards"] += [second, {"index": 2, "name": "NVIDIA T400", "capability": [7, 5]}]
    assert bad(data) == {"gpu persistence of 0000:b3:00.0": "fail"}


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place that may be null: what the measurement tells, without its own bookkeeping."""
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [path] if path and isinstance(path[-1], str) and path[-1] not in NEVER_NULL else []
    return found + [leaf for key, child in children for leaf in leaves(child, (*path, key)) if key not in SKIP]


NEVER_NULL = {
    "schema", "unreadable", "loaded", "index", "address", "kernel", "found", "path", "folder", "arch", "built", "text",
    "command", "exit", "wrong", "launches", "seconds", "source", "whole", "xids", "lines", "idle", "cuda_home_from",
}  # fmt: skip
SKIP = {"schema", "unreadable"}
LEAVES = [leaf for leaf in leaves(HEALTHY) if leaf != ("driver",)]
UNJUDGED = {
    "device", "module_load", "newest_kernel", "signer", "nvml_library", "cuda", "nvml_error", "name",
    "uuid", "bus", "card_link_generation", "power_default_mw", "ecc", "mig", "display", "gsp_firmware", "vbios",
    "link_replays", "sm_mhz", "power_mw", "celsius", "to_card_gb_s", "max_link_width",
}  # fmt: skip
"""What no verdict hangs on."""


REPLACED: set[tuple[str | int, ...]] = {
    ("driver", "library"), ("driver", "flavour"), ("driver", "module", "license"), ("driver", "next_module", "license"),
    ("cards", 0, "idle", "link_width"), ("cards", 0, "busy", "link_width"), ("cards", 0, "idle", "link_generation"),
    ("cards", 0, "idle", "memory_mhz"),
}  # fmt: skip
"""Another value tells the same, or only the other of two is judged."""


def nulled(paths: set[tuple[str | int, ...]]) -> dict[str, Any]:
    data = copy.deepcopy(HEALTHY)
    for path in sorted(paths, key=len, reverse=True):
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = None
    return data


@given(st.sets(st.sampled_from(LEAVES), min_size=1))
def test_any_subset_of_nulls_never_raises_and_never_gives_a_pass_more(paths: set[tuple[str | int, ...]]) -> None:
    healthy, found = judged(HEALTHY), judged(nulled(paths))
    new = {key for key, verdict in found.items() if verdict.result == "pass"} - set(healthy)
    assert not new
    if any(path[-1] not in UNJUDGED and path not in REPLACED for path in paths):
        assert any(verdict.result != "pass" for verdict in found.values()), paths
    for verdict in found.values():
        assert "\n" not in str(verdict)


@pytest.mark.parametrize("path", [leaf for leaf in LEAVES if leaf[-1] not in UNJUDGED], ids=str)
def test_each_judged_value_is_missed(path: tuple[str | int, ...]) -> None:
    found = judged(nulled({path}))
    lacking = {key for key, verdict in found.items() if verdict.result != "pass"}
    assert lacking or path in REPLACED, path
    assert not {key for key in lacking if found[key].result == "skipped"} - INFORMATION


def test_nothing_measured_passes_nothing() -> None:
    empty = judge(WANTED, Record(schema=1))
    assert {verdict.result for verdict in empty} == {"inconclusive"}


@pytest.mark.parametrize("name", NAMES)
def test_every_measurement_is_judged_in_single_lines(name: str) -> None:
    for wanted in (WANTED, Gpu(capability=(9, 0), toolkit="13.0", power_limit_w=400)):
        found = judge(wanted, record(name))
        assert len({verdict.key for verdict in found}) == len(found)
        assert all("\n" not in str(verdict) and verdict.why and verdict.wanted for verdict in found)
