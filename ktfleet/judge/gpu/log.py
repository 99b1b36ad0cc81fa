"""Verdicts on the kernel log: Xids by class, and known errors in words that help."""

from __future__ import annotations

from collections.abc import Collection

from ktfleet.judge.gpu.gaps import unknown
from ktfleet.measure.gpu_record import KernelLog, Record, Xid
from ktfleet.translate import translate
from ktfleet.verdict import Verdict

APPLICATION = {
    13: "graphics engine exception",
    31: "memory page fault of a program",
    43: "a program's work was stopped",
    45: "a program's work was cleaned up",
    68: "video processor exception",
    69: "graphics engine class error",
    94: "contained memory error: one program was ended",
    109: "context switch timeout",
}
"""The program is at fault, the card is not. Sources: NVIDIA's Xid catalog (immediate action: restart the program);
NVIDIA's k8s-device-plugin, internal/rm/health.go, which keeps a card in service after 13, 31, 43, 45, 68 and 109."""

UNHEALTHY = {
    48: "uncorrectable memory error",
    62: "internal micro-controller halt",
    63: "a memory row is marked for remapping",
    64: "a memory row could not be remapped",
    79: "the card fell off the bus",
    95: "uncontained memory error",
    119: "the card's GSP does not answer",
    120: "error in the card's GSP",
    140: "unrecovered memory error",
    143: "the card could not be initialised",
    154: "the driver asks for a recovery",
}
"""The card is not to be used before a reset or a reboot. Source: NVIDIA's Xid catalog (immediate action: reset the
GPU, reboot, or contact support)."""

_RESET = "stop the server and reboot; if it comes back: power cables, seating, temperature, then replace the card"


def judge(record: Record) -> tuple[Verdict, ...]:
    """Both. A log that could not be read says nothing."""
    log = record.kernel_log
    if log is None:
        why = record.why("kernel_log")
        return (unknown("gpu Xids", "none that hurts", why), unknown("gpu kernel log", "no known error", why))
    return (_xids(log), _errors(log, bool(record.cards)))


def _since(log: KernelLog) -> str:
    return "since the boot" if log.whole else f"in what is left of the {log.source}"


def _xids(log: KernelLog) -> Verdict:
    key, wanted = "gpu Xids", "none that hurts"
    why = "the driver reports with them what happened to the card"
    bad = _named(log.xids, UNHEALTHY)
    if bad:
        return Verdict(key, "fail", bad, wanted, why, _RESET)
    unclassed = [xid for xid in log.xids if xid.code not in APPLICATION]
    if unclassed:
        codes = ", ".join(f"{xid.code} ({xid.count}x)" for xid in unclassed)
        return unknown(key, wanted, f"the class of Xid {codes} is not known: look it up in NVIDIA's Xid catalog")
    programs = _named(log.xids, APPLICATION)
    seen = f"only of programs: {programs}" if programs else f"none {_since(log)}"
    return Verdict(key, "pass", seen, wanted, why)


def _named(xids: Collection[Xid], names: dict[int, str]) -> str:
    return ", ".join(f"{x.code} ({names[x.code]}, {x.count}x at {x.bus})" for x in xids if x.code in names)


def _errors(log: KernelLog, answers: bool) -> Verdict:
    """A known error counts while no card answers; afterwards it is history of this boot."""
    key, wanted, why = "gpu kernel log", "no known error", "the first error of the driver tells why a card is missing"
    known = translate("\n".join(log.lines))
    if known is None:
        return Verdict(key, "pass", f"no known error {_since(log)}", wanted, why)
    if answers:
        return Verdict(key, "pass", f"earlier in this boot, over now: {known.what}", wanted, why)
    return Verdict(key, "fail", known.seen, known.wanted, known.what, known.do)
