"""Verdicts on one card: what it is, how it is connected, what slows it down, whether it computes."""

from __future__ import annotations

from ktfleet.config import Gpu
from ktfleet.judge.gpu.gaps import unknown, untold, untold_busy
from ktfleet.judge.gpu.kernel import judge_kernel
from ktfleet.measure.gpu_record import Card, Process, Record
from ktfleet.plan.places import SERVER_UNIT
from ktfleet.translate import translate
from ktfleet.verdict import Verdict

LANES = 16
LEAST_GENERATION = 3
"""Of PCIe: what a Xeon Scalable of the first two generations has. Its slots allow no more, the card would."""

LEAST_MEMORY_CLOCK = 0.9
"""Of the card's maximum. The driver itself stays a little below it while it computes (its P2 state)."""

ALARMS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Clock event reasons that mean trouble (nvml.h, nvmlClocksEventReason*). Idle (0x1) and power cap (0x4) do not."""

MIB, GIB = 1024**2, 1024**3


def missing(wanted: Gpu, record: Record) -> Verdict:
    """No card has the wanted capability: what there is instead, or why nothing answers."""
    key = "gpu capability"
    if record.cards:
        if all(card.capability is None for card in record.cards):
            return unknown(key, wanted.sm, record.why(*(f"cards.{card.index}.capability" for card in record.cards)))
        do = "put the wanted card in, or correct gpu.capability in the inventory"
        return Verdict(key, "fail", "; ".join(map(_identity, record.cards)), wanted.sm, _MACHINE_CODE, do)
    reason = record.why("cards.0", "cards", "nvml", "pynvml", "measurement")
    if record.cards is None and record.driver.nvml_error is None:
        return unknown(key, wanted.sm, reason)
    said = (*(record.kernel_log.lines if record.kernel_log else ()), record.driver.module_load or "", reason)
    known = translate("\n".join(said))
    why, do = (known.what, known.do) if known else ("the driver shows no card", "see the kernel log: dmesg | grep NVRM")
    return Verdict(key, "fail", f"no card ({reason})", wanted.sm, why, do)


_MACHINE_CODE = "the stack's machine code is for that capability only"


def judge(wanted: Gpu, record: Record, card: Card, mark: str) -> tuple[Verdict, ...]:
    """One card of the wanted capability; `mark` tells several of them apart."""
    return (
        Verdict(f"gpu capability{mark}", "pass", _identity(card), wanted.sm, _MACHINE_CODE),
        _width(f"gpu PCIe width{mark}", record, card),
        _generation(f"gpu PCIe generation{mark}", record, card),
        _node(f"gpu NUMA node{mark}", record, card),
        _bar1(f"gpu BAR1{mark}", record, card),
        _persistence(f"gpu persistence{mark}", record, card),
        _memory_clock(f"gpu memory clock{mark}", record, card),
        _events(f"gpu clock events{mark}", record, card),
        _power(f"gpu power limit{mark}", wanted, record, card),
        _processes(f"gpu processes{mark}", record, card),
        judge_kernel(f"gpu kernel{mark}", wanted, record, card),
    )


def _identity(card: Card) -> str:
    capability = "sm_{}{}".format(*card.capability) if card.capability else "capability unknown"
    return f"{card.name or 'a card without a name'}, {capability}"


def _width(key: str, record: Record, card: Card) -> Verdict:
    wanted, why = f"x{LANES}", "half the lanes are half the speed at which layers and caches reach the card"
    width = (card.busy.link_width if card.busy else None) or card.idle.link_width
    if width is None:
        return unknown(key, wanted, record.why(f"cards.{card.index}.idle.link_width"))
    if width < LANES:
        do = "reseat the card; try another slot or riser; BIOS: no bifurcation of that slot"
        return Verdict(key, "fail", f"x{width}", wanted, why, do)
    return Verdict(key, "pass", f"x{width}", wanted, why)


def _generation(key: str, record: Record, card: Card) -> Verdict:
    """An idle link slows down to Gen1, and a card that could more than its slot is no fault."""
    most, busy = card.max_link_generation, card.busy.link_generation if card.busy else None
    wanted = f"Gen{max(most or 0, LEAST_GENERATION)} under load"
    why = "each generation is twice as fast as the one before"
    if busy is None:
        gap = untold_busy(key, wanted, record, card, "link_generation")
        return unknown(key, wanted, gap.why)  # Every card tells, by NVML or by sysfs: never skipped.
    if busy < LEAST_GENERATION or (most is not None and busy < most):
        do = "reseat the card; BIOS: PCIe speed of that slot to auto; try another slot or riser"
        return Verdict(key, "fail", f"Gen{busy} under load", wanted, why, do)
    if most is None:
        return unknown(key, wanted, record.why(f"cards.{card.index}.max_link_generation"))
    alone = card.card_link_generation
    more = f"; the card alone: Gen{alone}" if alone and alone > busy else ""
    return Verdict(key, "pass", f"Gen{busy} under load{more}", wanted, why)


def _node(key: str, record: Record, card: Card) -> Verdict:
    wanted, why = "one node", "threads and memory that feed the card belong on its node"
    if card.numa_node is None:
        return unknown(key, wanted, record.why(f"cards.{card.index}.numa_node"))
    return Verdict(key, "pass", f"node {card.numa_node}", wanted, why)


def _bar1(key: str, record: Record, card: Card) -> Verdict:
    """Information: decoding on one card does without Resizable BAR."""
    wanted, why = "anything: information", "one card alone does without Resizable BAR"
    if card.bar1_bytes is None or card.memory_bytes is None:
        reason = record.why(f"cards.{card.index}.bar1_bytes", f"cards.{card.index}.memory_bytes")
        return Verdict(key, "skipped", "nothing", wanted, f"information only, and not told: {reason}")
    if card.bar1_bytes >= card.memory_bytes:
        return Verdict(key, "pass", f"{_size(card.bar1_bytes)}: Resizable BAR is on", wanted, why)
    seen = f"{_size(card.bar1_bytes)} of {_size(card.memory_bytes)}: Resizable BAR is off (BIOS could enable it)"
    return Verdict(key, "pass", seen, wanted, why)


def _persistence(key: str, record: Record, card: Card) -> Verdict:
    wanted, why = "on", "otherwise the driver unloads the card's state with its last user, and starts it anew each time"
    if card.persistence is None:
        return untold(key, wanted, record, card, "persistence")
    if card.persistence:
        return Verdict(key, "pass", "on", wanted, why)
    do = "run nvidia-persistenced without --no-persistence-mode (a drop-in; nvidia-smi -pm does not last)"
    return Verdict(key, "fail", "off", wanted, why, do)


def _memory_clock(key: str, record: Record, card: Card) -> Verdict:
    """NVML has no getter for a locked clock: under load it shows."""
    most, busy = card.max_memory_mhz, card.busy.memory_mhz if card.busy else None
    least = f"at least {most * LEAST_MEMORY_CLOCK:.0f} MHz under load" if most else "nearly the maximum under load"
    if busy is None:
        return untold_busy(key, least, record, card, "memory_mhz")
    if most is None:
        return untold(key, least, record, card, "max_memory_mhz")
    why = "decoding reads all weights for each token: a locked memory clock costs up to a third"
    if busy < most * LEAST_MEMORY_CLOCK:
        return Verdict(key, "fail", f"{busy} MHz", least, why, "nvidia-smi --reset-memory-clocks; find who locks them")
    return Verdict(key, "pass", f"{busy} of {most} MHz", least, why)


def _events(key: str, record: Record, card: Card) -> Verdict:
    wanted, why = "no slowdown", "the card protects itself: it is too hot, or lacks power"
    idle, busy = card.idle.event_reasons, card.busy.event_reasons if card.busy else None
    alarms = [name for bit, name in ALARMS.items() if ((idle or 0) | (busy or 0)) & bit]
    if alarms:
        do = "look at fans, filters and power cables, then at nvidia-smi -q -d PERFORMANCE"
        return Verdict(key, "fail", ", ".join(alarms), wanted, why, do)
    if busy is None:
        return untold_busy(key, wanted, record, card, "event_reasons")
    if idle is None:
        return untold(key, wanted, record, card, "idle.event_reasons")
    return Verdict(key, "pass", "none", wanted, why)


def _power(key: str, wanted: Gpu, record: Record, card: Card) -> Verdict:
    """Information, unless the configuration asks for a limit."""
    seen, asked = card.power_limit_mw, wanted.power_limit_w
    if asked is None:
        if seen is None:
            why = f"information only, and not told: {record.why(f'cards.{card.index}.power_limit_mw')}"
            return Verdict(key, "skipped", "nothing", "anything: information", why)
        default = card.power_default_mw
        lowered = f" (default {default / 1000:.0f} W)" if default and default != seen else ""
        return Verdict(key, "pass", f"{seen / 1000:.0f} W{lowered}", "anything: information", "none is asked for")
    limit, why = f"{asked} W", "the configuration asks for it"
    if seen is None:
        return unknown(key, limit, record.why(f"cards.{card.index}.power_limit_mw"))
    if round(seen / 1000) != asked:
        return Verdict(key, "fail", f"{seen / 1000:.0f} W", limit, why, f"nvidia-smi --power-limit={asked}")
    return Verdict(key, "pass", limit, limit, why)


def _processes(key: str, record: Record, card: Card) -> Verdict:
    wanted, why = f"none but {SERVER_UNIT}", "what others hold of the card's memory is missing for the context"
    if card.processes is None:
        return untold(key, wanted, record, card, "processes")
    others = [process for process in card.processes if process.unit != SERVER_UNIT]
    if others:
        do = "stop them (a desktop: systemctl set-default multi-user.target, reboot)"
        return Verdict(key, "fail", ", ".join(map(_process, others)), wanted, why, do)
    return Verdict(key, "pass", "none" if not card.processes else f"only {SERVER_UNIT}", wanted, why)


def _process(process: Process) -> str:
    memory = f", {_size(process.memory_bytes)}" if process.memory_bytes else ""
    return f"{process.name or 'a process'} (pid {process.pid}{memory})"


def _size(size: int) -> str:
    return f"{size / GIB:.0f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
