"""Verdicts on the expert kernel: that it computes the right thing, and what it allows a token at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from ktfleet.judge.decode.statistics import summarise
from ktfleet.measure.experts_record import Record
from ktfleet.verdict import Verdict

KEY = "expert kernel"
NEAR = 0.005
"""Relative L1 beside a reference that rounds as the kernel does: only the order of sums differs. Seen: 0.00007."""
SHARE = 0.95
"""Of the published rate that the CPUs alone have to allow."""
SPREAD = 0.3
"""(Largest - smallest) / median of the quiet half of the rounds: above, something else used the machine."""

_WHY = "the experts of all layers are computed one after the other for every token"


@dataclass(frozen=True)
class Wanted:
    """layers: of experts in the model. tok_s: the published rate for this method, top-k and hardware; None: none."""

    layers: int
    tok_s: float | None = None


def judge(wanted: Wanted, record: Record | None) -> tuple[Verdict, ...]:
    """The result, the workers, the time."""
    if record is None:
        return (_nothing("it could not be run: it needs the server's environment"),)
    if record.why or not record.rounds_us:
        return (_nothing(record.why or "nothing ran"),)
    return tuple(_judged(wanted, record))


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    return (_nothing("the measurement was begun and has not ended"),)


def ceiling(layers: int, record: Record) -> float | None:
    """Tokens a second that the CPUs' share of a token allows. None: it was not measured."""
    return 1e6 / (layers * median(record.rounds_us)) if record.rounds_us else None


def _judged(wanted: Wanted, record: Record) -> Iterator[Verdict]:
    yield _result(record)
    loose = sorted(name for name, cpus in record.workers.items() if len(cpus) != 1)
    if loose or not record.workers:
        seen, why = ", ".join(loose) or "no worker", "a worker without a CPU of its own makes every time wrong"
        yield Verdict(f"{KEY} workers", "inconclusive", seen, "each on one CPU", why)
    else:
        yield Verdict(f"{KEY} workers", "pass", f"{len(record.workers)} bound", "each on one CPU", _WHY)
    yield _time(wanted, record)


def _result(record: Record) -> Verdict:
    key, wanted = f"{KEY} result", f"at most {NEAR} from numpy with the same roundings"
    why, do = "a kernel that computes something else is fast for nothing", "do not serve with this variant; report it"
    about = f"{record.kernel} of {record.variant}"
    if not record.finite:
        return Verdict(key, "fail", f"{about}: no numbers", wanted, why, do)
    if record.distance is None:
        return Verdict(key, "inconclusive", about, wanted, record.distance_why or "it was not compared")
    good = record.distance <= NEAR
    return Verdict(key, "pass" if good else "fail", f"{about}: {record.distance}", wanted, why, do)


def _time(wanted: Wanted, record: Record) -> Verdict:
    key = f"{KEY} time"
    rates = summarise([1e6 / (wanted.layers * each) for each in record.rounds_us])
    layer = median(record.rounds_us)
    share = f"{wanted.layers * layer / 1e3:.1f} ms of a token"
    seen = f"{layer:.0f} us a layer, {record.gb_s:.1f} GB/s, {share}: at most {rates}"
    quiet = sorted(record.rounds_us)[: max(1, len(record.rounds_us) // 2)]
    least = f">= {SHARE * wanted.tok_s:.1f} tok/s ({SHARE:.0%} of the published)" if wanted.tok_s else "anything"
    if (quiet[-1] - quiet[0]) / layer > SPREAD:
        why = f"even the quiet half of the rounds differs by more than {SPREAD:.0%}: something else uses the machine"
        return Verdict(key, "inconclusive", seen, least, why)
    if wanted.tok_s is None:
        return Verdict(key, "pass", seen, least, "reported, not judged: nothing was published for this setup")
    do = "see the verdicts on bandwidth and drift: governor, huge pages, a lost channel"
    good = rates.median >= SHARE * wanted.tok_s
    return Verdict(key, "pass" if good else "fail", seen, least, _WHY, do)


def _nothing(why: str) -> Verdict:
    return Verdict(KEY, "inconclusive", "nothing", "one layer of experts", why)
