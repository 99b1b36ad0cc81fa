from typing import Any

import pytest
from hypothesis import given

from ktfleet.host.state import Dimm, Display, HostState
from ktfleet.plan import worksheet
from ktfleet.plan.settings import SMT_CONTROL, TURBO_OFF
from ktfleet.plan.worksheet import Item
from tests.states import GIB, hosts, workstation


def dimms(*used: int, mts: int = 2400, rated: int = 2400) -> tuple[Dimm, ...]:
    """As many channels as `used` says, a socket each, one DIMM in each; the other slots are empty."""
    return tuple(
        Dimm(
            label=f"P{socket}-{channel}",
            socket=socket,
            channel=str(channel),
            size=32 * GIB if channel < count else 0,
            configured_mts=mts,
            rated_mts=rated,
        )
        for socket, count in enumerate(used)
        for channel in range(6)
    )


CARD = Display(address="0000:17:00.0", vendor="10de", device="2b85", link_width=16, bar1_bytes=32 * GIB)


def sheet(**update: Any) -> dict[str, Item]:
    complete = {"dimms": dimms(6, 6), "displays": (CARD,), **update}
    return {item.item: item for item in worksheet.items(workstation().model_copy(update=complete))}


def test_a_perfect_machine_has_nothing_to_change() -> None:
    assert {item.answer for item in sheet().values()} == {"good"}


def test_the_fleets_eight_dimms_leave_a_third_of_the_bandwidth_unused() -> None:
    item = sheet(dimms=dimms(4, 4))["memory channels"]
    assert (item.answer, item.seen) == ("change", "4 on socket 0, 4 on socket 1")
    assert item.worth == "up to 1.50x the memory bandwidth (153.6 GB/s now, 230.4 GB/s then, both in theory)"
    assert item.do == "add 4 DIMMs like the present ones, one in each empty channel"


def test_a_lost_channel_is_to_be_reseated() -> None:
    item = sheet(dimms=dimms(6, 5))["memory channels"]
    assert (item.answer, item.seen) == ("change", "6 on socket 0, 5 on socket 1")
    assert "reseat it" in item.do


def test_two_dimms_of_one_channel_are_one_channel() -> None:
    second = tuple(dimm.model_copy(update={"label": dimm.label + "b"}) for dimm in dimms(4, 4))
    assert sheet(dimms=(*dimms(4, 4), *second))["memory channels"].seen == "4 on socket 0, 4 on socket 1"


@pytest.mark.parametrize("found", [None, (), dimms(0, 0)])
def test_without_a_list_of_dimms_the_channels_are_unknown(found: tuple[Dimm, ...] | None) -> None:
    assert sheet(dimms=found)["memory channels"].answer == "unknown"


def test_a_label_of_no_known_form_is_unknown_and_named() -> None:
    odd = tuple(dimm.model_copy(update={"channel": None}) for dimm in dimms(6, 6))
    item = sheet(dimms=odd)["memory channels"]
    assert (item.answer, item.seen) == ("unknown", "no known form of slot label: P0-0, P0-1, P0-2")


def test_dimms_below_their_speed() -> None:
    item = sheet(dimms=dimms(6, 6, mts=2133, rated=2666))["memory speed"]
    assert (item.answer, item.seen) == ("change", "2133 MT/s of 2666")
    assert item.worth.startswith("up to 1.25x the memory bandwidth")


def test_a_bios_that_keeps_the_clocks() -> None:
    item = sheet(cpufreq_driver=None)["power control"]
    assert (item.answer, item.where) == ("change", "BIOS > Power (or System Profile) > CPU Power Management")


@pytest.mark.parametrize(("control", "where"), [
    ("notsupported", "BIOS > Processor > Hyper-Threading"), ("off", "the kernel command line"),
])  # fmt: skip
def test_hyperthreads_off(control: str, where: str) -> None:
    state = workstation(threads=1)
    state = state.model_copy(update={"sysfs": {**state.sysfs, SMT_CONTROL: control}})
    item = {item.item: item for item in worksheet.items(state)}["hyperthreads"]
    assert (item.answer, item.where) == ("change", where)


def test_sub_numa_clustering() -> None:
    state = workstation(nodes_per_socket=2, node_gib=(63, 63, 63, 63))
    item = {item.item: item for item in worksheet.items(state)}["sub-NUMA clustering"]
    assert (item.answer, item.seen) == ("change", "4 nodes on 2 sockets")


@pytest.mark.parametrize(("text", "answer"), [("0", "good"), ("1", "change"), (None, "unknown")])
def test_turbo(text: str | None, answer: str) -> None:
    state = workstation()
    sysfs = {k: v for k, v in state.sysfs.items() if k != TURBO_OFF} | ({TURBO_OFF: text} if text else {})
    assert {i.item: i for i in worksheet.items(state.model_copy(update={"sysfs": sysfs}))}["turbo"].answer == answer


@pytest.mark.parametrize(("card", "answers"), [
    ({"bar1_bytes": 256 << 20}, ["change", "good"]), ({"link_width": 8}, ["good", "change"]),
    ({"bar1_bytes": None, "link_width": None}, ["unknown", "unknown"]),
])  # fmt: skip
def test_the_card(card: dict[str, Any], answers: list[str]) -> None:
    found = sheet(displays=(CARD.model_copy(update=card), Display(address="0000:03:00.0", vendor="1a03")))
    assert [item.answer for name, item in found.items() if "GPU" in name] == answers


@given(hosts())
def test_any_host_gets_a_sheet_in_words(state: HostState) -> None:
    for item in worksheet.items(state):
        assert str(item).startswith(item.item)
        assert item.answer != "change" or (item.where and item.do and item.worth)


def test_nothing_is_good_that_was_not_read() -> None:
    answers = {item.item: item.answer for item in worksheet.items(HostState(schema=1))}
    assert "good" not in answers.values()
