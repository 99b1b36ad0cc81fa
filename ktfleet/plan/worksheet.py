"""The BIOS and DIMM worksheet: what a person with access to the machine can change, and what it is worth.

Software cannot change any of it. Nothing here stops a deploy; what does is in refusals.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ktfleet.host.state import Dimm, Display, HostState
from ktfleet.plan.settings import SMT_CONTROL, TURBO_OFF

Answer = Literal["good", "change", "unknown"]

CHANNELS_PER_SOCKET = 6
"""Of a Skylake-SP."""

BYTES_PER_TRANSFER = 8
"""A DDR4 channel is 64 bits wide."""

REBAR_BYTES = 1 << 30
"""Without resizable BAR, a card shows 256 MiB of its memory; with it, all."""

NVIDIA = "10de"


@dataclass(frozen=True)
class Item:
    """One line. `where` is the menu or the part, `do` what to do there, `worth` what it brings and how we know."""

    item: str
    answer: Answer
    seen: str
    wanted: str
    where: str = ""
    do: str = ""
    worth: str = ""

    def __str__(self) -> str:
        if self.answer == "good":
            return f"{self.item}: {self.seen}"
        if self.answer == "unknown":
            return f"{self.item}: unknown ({self.seen}), wanted {self.wanted}"
        return f"{self.item}: seen {self.seen}, wanted {self.wanted}; {self.where}: {self.do}. Worth: {self.worth}"


def items(state: HostState) -> tuple[Item, ...]:
    """The whole worksheet, in the order of a walk through the BIOS, then the board."""
    return (
        _clustering(state),
        _hyperthreads(state),
        _power_control(state),
        _turbo(state),
        *_memory(state),
        *(item for card in state.displays or () if card.vendor == NVIDIA for item in _card(card)),
    )


def _clustering(state: HostState) -> Item:
    name, wanted = "sub-NUMA clustering", "off"
    sockets = {cpu.socket for cpu in state.cpus} - {None}
    if not sockets or not state.nodes:
        return Item(name, "unknown", "sockets or nodes were not read", wanted)
    if len(state.nodes) <= len(sockets):
        return Item(name, "good", "off", wanted)
    where, do = "BIOS > Processor (or Chipset) > Sub NUMA Clustering (SNC)", "disable"
    worth = "a host with it is refused: kt-kernel makes a pool for each node, and the weights are made for 2"
    return Item(name, "change", f"{len(state.nodes)} nodes on {len(sockets)} sockets", wanted, where, do, worth)


def _hyperthreads(state: HostState) -> Item:
    name, wanted = "hyperthreads", "on"
    control = state.sysfs.get(SMT_CONTROL)
    if any(cpu.siblings and len(cpu.siblings) > 1 for cpu in state.cpus):
        return Item(name, "good", "on", wanted)
    if not state.cpus or any(cpu.siblings is None for cpu in state.cpus):
        return Item(name, "unknown", "the sibling lists were not read", wanted)
    where, do = "BIOS > Processor > Hyper-Threading", "enable"
    if control == "off":
        where, do = "the kernel command line", "remove nosmt"
    worth = "one more worker a node: without siblings one core of each is kept back for the other threads"
    return Item(name, "change", f"off ({control or 'no control'})", wanted, where, do, worth)


def _power_control(state: HostState) -> Item:
    name, wanted = "power control", "by the operating system"
    if state.cpufreq_driver:
        return Item(name, "good", f"by Linux ({state.cpufreq_driver})", wanted)
    where = "BIOS > Power (or System Profile) > CPU Power Management"
    do = "OS control (OS DBPM), or else maximum performance"
    worth = "governor and energy preference can be set and checked; not measured"
    return Item(name, "change", "no cpufreq driver", wanted, where, do, worth)


def _turbo(state: HostState) -> Item:
    name, wanted = "turbo", "on"
    seen = state.sysfs.get(TURBO_OFF)
    if seen is None:
        return Item(name, "unknown", "no intel_pstate driver", wanted)
    if seen == "0":
        return Item(name, "good", "on", wanted)
    worth = "clock is speed here, the kernels are limited by instructions as much as by memory; not measured"
    where, do = "BIOS > Processor > Turbo Boost", "enable, if a deploy does not switch it on"
    return Item(name, "change", "off", wanted, where, do, worth)


def _memory(state: HostState) -> Iterator[Item]:
    populated = [dimm for dimm in state.dimms or () if dimm.size]
    if not populated:
        reason = "no edac labels and no SMBIOS table"
        yield Item("memory channels", "unknown", reason, "all channels of both sockets")
        return
    yield _channels(populated)
    yield _speed(populated)


def _channels(populated: list[Dimm]) -> Item:
    """Reading the weights is what a token waits for, so a channel without a DIMM is speed that lies idle."""
    name = "memory channels"
    wanted = f"{CHANNELS_PER_SOCKET} on each socket"
    unnamed = [dimm.label for dimm in populated if dimm.socket is None or dimm.channel is None]
    if unnamed:
        return Item(name, "unknown", f"no known form of slot label: {', '.join(unnamed[:3])}", wanted)
    used = Counter(socket for socket, _ in {(dimm.socket, dimm.channel) for dimm in populated})
    seen = ", ".join(f"{count} on socket {socket}" for socket, count in sorted(used.items(), key=str))
    if min(used.values()) >= CHANNELS_PER_SOCKET and len(used) > 1:
        return Item(name, "good", seen, wanted)
    now = sum(used.values())
    best = CHANNELS_PER_SOCKET * max(2, len(used))
    rate = min((dimm.configured_mts for dimm in populated if dimm.configured_mts), default=None)
    worth = f"up to {best / now:.2f}x the memory bandwidth"
    if rate:
        worth += f" ({_gbs(now, rate)} now, {_gbs(best, rate)} then, both in theory)"
    do = f"add {best - now} DIMMs like the present ones, one in each empty channel"
    if len(set(used.values())) > 1:
        do = "one channel lost its DIMM, or has a dead one: reseat it, as many on each socket"
    return Item(name, "change", seen, wanted, "the board", do, worth)


def _gbs(channels: int, mts: int) -> str:
    return f"{channels * mts * BYTES_PER_TRANSFER / 1000:.1f} GB/s"


def theory_gb_s(state: HostState) -> dict[int, float]:
    """Node -> its memory's bandwidth in theory, from the channels seen; nothing where labels or speeds are unknown."""
    populated = [dimm for dimm in state.dimms or () if dimm.size]
    if not populated or any(None in (dimm.socket, dimm.channel, dimm.configured_mts) for dimm in populated):
        return {}
    channels = Counter(socket for socket, _ in {(dimm.socket, dimm.channel) for dimm in populated})
    rate = min(dimm.configured_mts or 0 for dimm in populated)
    sockets = {cpu.node: cpu.socket for cpu in state.cpus if cpu.node is not None}
    # With sub-NUMA clustering several nodes share a socket's channels.
    sharing = Counter(sockets.values())
    return {
        node: channels[socket] * rate * BYTES_PER_TRANSFER / 1000 / sharing[socket]
        for node, socket in sockets.items()
        if channels[socket]
    }


def _speed(populated: list[Dimm]) -> Item:
    name, wanted = "memory speed", "what the DIMMs are rated for"
    pairs = [(dimm.configured_mts, dimm.rated_mts) for dimm in populated if dimm.configured_mts and dimm.rated_mts]
    if not pairs:
        return Item(name, "unknown", "no speed in the SMBIOS table", wanted)
    configured, rated = min(seen for seen, _ in pairs), min(rated for _, rated in pairs)
    seen = f"{configured} MT/s of {rated}"
    if configured >= rated:
        return Item(name, "good", seen, wanted)
    worth = f"up to {rated / configured:.2f}x the memory bandwidth, as far as the CPU allows it"
    return Item(name, "change", seen, wanted, "BIOS > Memory > Frequency", "automatic or maximum", worth)


def _card(card: Display) -> Iterator[Item]:
    name = f"GPU {card.address}"
    if card.bar1_bytes is None:
        yield Item(f"{name} resizable BAR", "unknown", "its memory regions were not read", "on")
    elif card.bar1_bytes >= REBAR_BYTES:
        yield Item(f"{name} resizable BAR", "good", f"BAR1 of {card.bar1_bytes >> 30} GiB", "on")
    else:
        where, do = "BIOS > PCIe > Above 4G Decoding, then Re-Size BAR", "enable both"
        worth = "the driver may not start without Above 4G Decoding (RmInitAdapter failed); speed not measured"
        yield Item(f"{name} resizable BAR", "change", f"BAR1 of {card.bar1_bytes >> 20} MiB", "on", where, do, worth)
    width = f"{name} link width"
    if card.link_width is None:
        yield Item(width, "unknown", "it was not read", "x16")
    elif card.link_width >= 16:
        yield Item(width, "good", f"x{card.link_width}", "x16")
    else:
        do = "put the card into a slot of 16 lanes, reseat it, look for bifurcation in the BIOS"
        worth = "the attention's traffic with the CPUs halves its time for each doubling of the lanes (in theory)"
        yield Item(width, "change", f"x{card.link_width}", "x16", "the board", do, worth)
