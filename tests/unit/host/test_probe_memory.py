"""Swap, DIMMs and idle states."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.host.probe import cpus, dimms, reader, values
from ktfleet.host.state import Dimm
from tests.trees import put, smbios, smbios_slot
from tests.unit.host.probed import state

CPUIDLE = "/sys/devices/system/cpu/cpu0/cpuidle"


def places(labels: list[tuple[str, str]], dell: bool = False) -> list[tuple[int | None, str | None]]:
    return dimms.locate(labels, dell)


def test_the_fleet_has_four_of_six_channels(workstation: Path) -> None:
    found = state(workstation).dimms
    assert found is not None
    assert [(dimm.socket, dimm.channel) for dimm in found] == [
        (socket, channel) for socket in (0, 1) for channel in ("0.0", "0.1", "1.0", "1.1")
    ]
    assert {(dimm.size, dimm.rated_mts, dimm.configured_mts) for dimm in found} == {(32 << 30, 2666, 2666)}


def test_edac_has_no_speeds_of_its_own(tree: Path) -> None:
    """Where SMBIOS lists other DIMMs, or unlike ones, nobody knows whose speed is whose."""
    slots = [smbios_slot("P1-DIMMA1", "", 32768, configured=2400 - n) for n in range(8)]
    for table in (smbios(slots), smbios(slots[:1]), b""):
        put(tree, dimms.SMBIOS, table)
        seen = state(tree)
        assert seen.dimms is not None
        assert {(dimm.size, dimm.rated_mts) for dimm in seen.dimms} == {(32 << 30, None)}
        assert "dimms.speed" in seen.unreadable


def test_without_edac_smbios_tells(tree: Path) -> None:
    """Empty slots, sizes in KiB and above 32 GiB, unknown sizes, speeds of DDR5."""
    shutil.rmtree(tree / dimms.EDAC[1:])
    kib = bytearray(smbios_slot("P1-DIMMC1", "", 0))
    kib[0x0C:0x0E] = (0x8000 | 512).to_bytes(2, "little")
    unknown = bytearray(smbios_slot("P1-DIMMD1", "", 0))
    unknown[0x0C:0x0E] = b"\xff\xff"
    fast = bytearray(smbios_slot("P2-DIMMA1", "P1_Node0_Channel0_Dimm0", 65536, rated=0xFFFF))
    fast[0x54:0x58] = (70000).to_bytes(4, "little")
    slots = [smbios_slot("P1-DIMMA1", "", 0), smbios_slot("P1-DIMMB1", "", 16384, 2933, 2666), kib, unknown, fast]
    put(tree, dimms.SMBIOS, smbios(map(bytes, slots)))
    gib = 1 << 30
    assert state(tree).dimms == (
        Dimm(label="P1-DIMMA1", socket=0, channel="A", size=0),
        Dimm(label="P1-DIMMB1", socket=0, channel="B", size=16 * gib, rated_mts=2933, configured_mts=2666),
        Dimm(label="P1-DIMMC1", socket=0, channel="C", size=512 << 10),
        Dimm(label="P1-DIMMD1", socket=0, channel="D"),
        Dimm(label="P2-DIMMA1", socket=1, channel="A", size=64 * gib, rated_mts=70000, configured_mts=2666),
    )


@pytest.mark.parametrize(
    ("label", "bank", "wanted"),
    [
        ("CPU_SrcID#0_MC#1_Chan#2_DIMM#0", "", (0, "1.2")),
        ("CPU_SrcID#1_Ha#0_Chan#3_DIMM#1", "", (1, "0.3")),
        ("CPU_SrcID#1_Ha#0_MC#0_Chan#1_DIMM#0", "", (1, "0.0.1")),
        ("P1-DIMMA1", "P0_Node0_Channel0_Dimm0", (0, "A")),
        ("P2-DIMMF2", "P1_Node1_Channel2_Dimm1", (1, "F")),
        ("DIMM 3", "P1_Node1_Channel2_Dimm1", (0, "1.2")),
        ("CPU1_DIMM_A1", "NODE 1", (0, "A")),
        ("DIMM_P2_C0", "", (1, "C")),
        ("PROC 1 DIMM 8", "", (0, None)),
        ("PROC 2 DIMM 12", "", (1, None)),
        ("DIMM_A1", "", (None, None)),
        ("A1", "Not Specified", (None, None)),
        ("mc#0csrow#1channel#0", "", (None, None)),
        ("", "", (None, None)),
    ],
)
def test_known_labels(label: str, bank: str, wanted: tuple[int | None, str | None]) -> None:
    """Socket and channel; None where the form is unknown."""
    assert places([(label, bank)]) == [wanted]


def test_sockets_counted_from_zero() -> None:
    """One label with CPU0 tells how the others count."""
    assert places([("CPU0_A0", ""), ("CPU1_B0", "")]) == [(0, "A"), (1, "B")]
    assert places([("CPU1_A0", ""), ("CPU2_B0", "")]) == [(0, "A"), (1, "B")]


def test_dell_counts_slots(tree: Path) -> None:
    """A1-A6 are the first slots of the six channels, A7-A12 the second ones."""
    shutil.rmtree(tree / dimms.EDAC[1:])
    labels = [f"{socket}{slot}" for socket in "AB" for slot in range(1, 13)]
    put(tree, dimms.SMBIOS, smbios(smbios_slot(label, "Not Specified", 16384) for label in labels))
    put(tree, dimms.DMI_VENDOR, "Dell Inc.\n")
    found = state(tree).dimms
    assert found is not None
    assert [(dimm.socket, dimm.channel) for dimm in found[:8]] == [(0, str(n % 6)) for n in range(8)]
    assert [(dimm.socket, dimm.channel) for dimm in found[12:14]] == [(1, "0"), (1, "1")]
    assert places([("A1", ""), ("A2", "")], dell=True) == [(0, None), (0, None)]


def test_no_source_of_dimms(tree: Path) -> None:
    shutil.rmtree(tree / dimms.EDAC[1:])
    (tree / dimms.SMBIOS[1:]).unlink()
    seen = state(tree)
    assert seen.dimms is None
    assert seen.unreadable["dimms"] == "no memory controller in EDAC and no SMBIOS table"


@given(st.binary(max_size=300))
def test_any_table_is_parsed_or_refused(table: bytes) -> None:
    """Garbage after a good slot, too."""
    for data in (table, smbios_slot("A1", "", 1) + table):
        with suppress(values.ReadError):
            dimms.parse_smbios(data)


def test_swap(tree: Path) -> None:
    """KiB become bytes, blanks are octal."""
    head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    put(tree, "/proc/swaps", head + "/dev/sda2  partition\t1000\t\t8\t\t-2\n/swap\\040file file 4 0 5\n")
    swaps = state(tree).swaps
    assert swaps is not None
    assert [(swap.device, swap.size, swap.used) for swap in swaps] == [
        ("/dev/sda2", 1024000, 8192),
        ("/swap file", 4096, 0),
    ]


def test_idle_states(workstation: Path) -> None:
    seen = state(workstation)
    assert seen.idle_driver == "intel_idle"
    assert [(idle.name, idle.latency_us, idle.disabled) for idle in seen.idle_states] == [
        ("POLL", 0, False), ("C1", 2, False), ("C1E", 10, False), ("C6", 133, False),
    ]  # fmt: skip


def test_an_idle_state_without_a_latency_is_left_out(tree: Path) -> None:
    """With the reason; one without the switch is kept."""
    put(tree, f"{CPUIDLE}/state1/latency", "x\n")
    (tree / f"{CPUIDLE[1:]}/state2/disable").unlink()
    put(tree, f"{CPUIDLE}/state3/disable", "1\n")
    seen = state(tree)
    assert [(idle.name, idle.disabled) for idle in seen.idle_states] == [
        ("POLL", False), ("C1E", None), ("C6", True),
    ]  # fmt: skip
    assert seen.unreadable[f"{CPUIDLE}/state1/latency"] == "not a count: seen 'x'"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda file: file.write_bytes(bytes(4)), "not a character device"),
        (lambda file: file.symlink_to("/dev/null"), "not 4 bytes"),
        (lambda file: None, "no such file"),
    ],
)
def test_the_latency_cap_is_a_device(tmp_path: Path, make: object, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(make)
    make(tmp_path / "device")
    monkeypatch.setattr(cpus, "DMA_LATENCY", str(tmp_path / "device"))
    live = reader.Reader("/")
    assert reader.read_live(live, "cpu_dma_latency_us", cpus.dma_latency) is None
    assert live.reasons == {"cpu_dma_latency_us": why}


@pytest.mark.skipif(not os.access(cpus.DMA_LATENCY, os.R_OK), reason="needs root and the device")
def test_the_latency_cap_of_this_machine() -> None:
    """2000 s: nobody asks for a cap."""
    assert 0 <= cpus.dma_latency() <= 2_000_000_000
