"""The card's interrupts: none where a worker is."""

from __future__ import annotations

from ktfleet.judge.placement.threads import worker_cpus
from ktfleet.judge.placement.wanted import Wanted
from ktfleet.measure.placement_record import Record
from ktfleet.plan.cpu_lists import parse, ranges
from ktfleet.verdict import Verdict

KEY = "the card's interrupts"


def judge(plan: Wanted, record: Record) -> Verdict:
    """By the CPUs that really take them; where the kernel does not tell those, by the ones that may."""
    taken = worker_cpus(record) or {cpu for cpus in plan.workers.values() for cpu in cpus}
    wanted, why = f"none of the workers' CPUs {ranges(taken)}", "an interrupt stops a worker, and with it its pool"
    if not plan.gpu:
        return Verdict(KEY, "skipped", "no card", "nothing", "the configuration has no card to serve with")
    if record.interrupts_why:
        return Verdict(KEY, "inconclusive", "nothing", wanted, f"they could not be read: {record.interrupts_why}")
    if not record.interrupts:
        return Verdict(KEY, "inconclusive", "none named nvidia", wanted, "the driver has none in /proc/interrupts")
    lists = {each.irq: each.effective or each.allowed for each in record.interrupts}
    unread = [irq for irq, cpus in lists.items() if not parse(cpus or "")]
    bad = [f"{irq} on {cpus}" for irq, cpus in lists.items() if taken.intersection(parse(cpus or ""))]
    if bad:
        do = "see the drift check (irqbalance, default_smp_affinity), then load the driver again or reboot"
        return Verdict(KEY, "fail", ", ".join(bad), wanted, why, do)
    if unread:
        return Verdict(KEY, "inconclusive", "nothing", wanted, f"interrupt {unread[0]} does not tell its CPUs")
    return Verdict(KEY, "pass", ", ".join(f"{irq} on {cpus}" for irq, cpus in lists.items()), wanted, why)
