"""Verdicts on the decode rate: a measurement and what is known beforehand in, one verdict a thing out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ktfleet.judge.decode.causes import likely
from ktfleet.judge.decode.statistics import Rate, summarise
from ktfleet.judge.decode.wanted import Wanted
from ktfleet.measure.decode_record import Record, Run, Streams
from ktfleet.verdict import Verdict

KEY = "decode rate"
PROMPTS = ("prose", "code")
SHORTEST = 64
"""Tokens of a run that counts: the first and last few are the least regular ones."""
_BUSY_DO = "see who uses the server, or stop them"


def judge(
    wanted: Wanted, record: Record | None, others: Mapping[str, tuple[Verdict, ...]] | None = None
) -> tuple[Verdict, ...]:
    """Everything that was measured. `others`: this host's verdicts of other checks, which may explain a low rate."""
    if record is None:
        return (Verdict(KEY, "inconclusive", "nothing", "the measurement's answer", "it could not be run"),)
    if not record.ready.ready:
        return (Verdict("decode server", "inconclusive", "no ready server", "/health and one token", record.ready.why),)
    rates = {name: measured(name, wanted, record) for name in PROMPTS}
    sure = tuple(rate for rate in rates.values() if isinstance(rate, Rate))
    return (
        *(_valid(name, rate) for name, rate in rates.items()),
        *_compared(wanted, sure, others or {}),
        *(_rung(run) for run in record.ladder),
        *(_streams(streams) for streams in record.streams),
        *_probe(record),
    )


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    why = "the measurement was begun and has not ended"
    return (Verdict(KEY, "inconclusive", "nothing", "the measurement's answer", why),)


def slowest(wanted: Wanted, record: Record) -> float | None:
    """The rate for the host's history: the lower of the two medians; None when one of them is not sure."""
    rates = [measured(name, wanted, record) for name in PROMPTS]
    sure = [rate.median for rate in rates if isinstance(rate, Rate)]
    return min(sure) if len(sure) == len(PROMPTS) else None


def measured(name: str, wanted: Wanted, record: Record) -> Rate | Verdict:
    """The rate of one prompt, or the verdict that there is none to trust."""
    key, text = f"decode of {name}", f"{wanted.runs} runs of {SHORTEST} tokens or more"
    runs = [run for run in record.runs if run.prompt == name]
    bad = next((run for run in runs if run.verdict != "ok"), None)
    if bad or not runs:
        return Verdict(key, "inconclusive", "nothing", text, bad.reason if bad else record.stopped or "nothing ran")
    if any(run.foreign is None for run in runs):
        why = "the server does not tell how many requests it has: start it with its metrics on"
        return Verdict(key, "inconclusive", f"{len(runs)} runs", "no foreign requests", why)
    foreign = max((run.foreign or 0 for run in runs), default=0)
    if foreign:
        return Verdict(key, "inconclusive", f"{foreign} foreign requests", "none", f"busy; {_BUSY_DO}")
    long = [run for run in runs if (run.tokens or 0) >= SHORTEST and run.decode_tok_s]
    if len(long) < wanted.runs:
        why = "the answers ended early, or the measurement did"
        return Verdict(key, "inconclusive", f"{len(long)} such runs", text, record.stopped or why)
    vague = max((_vagueness(run) for run in long), default=0.0)
    if vague > wanted.spread:
        why = "the server counts its tokens only at the end, and too few chunks came to say more"
        return Verdict(key, "inconclusive", f"bounds {vague:.0%} apart", f"at most {wanted.spread:.0%}", why)
    rate = summarise([run.decode_tok_s or 0.0 for run in long])
    if rate.spread > wanted.spread:
        why = "the runs differ too much: something else uses this machine, or it slows down with heat"
        return Verdict(key, "inconclusive", str(rate), f"a spread of at most {wanted.spread:.0%}", why)
    return rate


def _vagueness(run: Run) -> float:
    """How far the bounds of an approximate rate are apart, as a share of it."""
    if not run.approximate or not run.decode_tok_s:
        return 0.0
    return ((run.high_tok_s or 0.0) - (run.low_tok_s or 0.0)) / run.decode_tok_s


def _valid(name: str, rate: Rate | Verdict) -> Verdict:
    if isinstance(rate, Verdict):
        return rate
    return Verdict(f"decode of {name}", "pass", str(rate), "enough equal runs", "one run proves nothing")


def _compared(wanted: Wanted, sure: tuple[Rate, ...], others: Mapping[str, tuple[Verdict, ...]]) -> Iterator[Verdict]:
    """With the published figure, with the ceiling, with the host's own past. The slower prompt counts."""
    if len(sure) < len(PROMPTS):
        yield Verdict(KEY, "inconclusive", "nothing", "both prompts measured", "see decode of prose and of code")
        return
    rate = min(sure, key=lambda one: one.median)
    figure = wanted.applicable
    if figure is None:
        why = f"no figure is published for {wanted.setup}; measured {rate}"
        yield Verdict(KEY, "skipped", str(rate), "nothing", why)
    else:
        yield _against(KEY, rate, figure.tok_s * wanted.share, str(figure), others)
    yield _ceiling(rate, wanted)
    if wanted.usual is None:
        why = "it is the first sure rate of this host with this setup"
        yield Verdict("decode history", "skipped", str(rate), "nothing", why)
    else:
        before = f"this host had {wanted.usual:.1f} before"
        yield _against("decode history", rate, wanted.usual * wanted.share, before, others)


def _against(key: str, rate: Rate, least: float, basis: str, others: Mapping[str, tuple[Verdict, ...]]) -> Verdict:
    text = f">= {least:.1f} tok/s"
    if rate.low >= least:
        return Verdict(key, "pass", str(rate), text, basis)
    if rate.high >= least:
        why = f"the limit lies within the interval ({basis}): more runs are needed"
        return Verdict(key, "inconclusive", str(rate), text, why)
    cause, do = likely(others) or (basis, "run the other checks; compare with a twin of this host")
    return Verdict(key, "fail", str(rate), text, cause if cause == basis else f"{cause} ({basis})", do)


def _ceiling(rate: Rate, wanted: Wanted) -> Verdict:
    key = "decode ceiling"
    if wanted.ceiling_tok_s is None:
        return Verdict(
            key, "skipped", str(rate), "nothing", "this host's bandwidth was not measured: checks/bandwidth.py"
        )
    text = f"at most {wanted.ceiling_tok_s:.1f} tok/s"
    if rate.low > wanted.ceiling_tok_s:
        why = "faster than memory allows: the model that runs is not the recipe's, or something was measured wrongly"
        return Verdict(key, "inconclusive", str(rate), text, why)
    share = rate.median / wanted.ceiling_tok_s
    return Verdict(key, "pass", f"{share:.0%} of it", text, "every token reads its experts from memory")


def _rung(run: Run) -> Verdict:
    key, text = f"decode in {run.prompt}", "an answer"
    if run.kind in ("hang", "cut"):
        do = "see the server's log; restart it"
        return Verdict(key, "fail", run.reason, text, "longer prompts are what the context is for", do)
    if run.verdict != "ok":
        return Verdict(key, "inconclusive", "nothing", text, run.reason)
    return Verdict(key, "pass", _numbers(run), text, "reported, not judged")


def _numbers(run: Run) -> str:
    prefill = f", prefill {run.prefill_tok_s:.0f} tok/s" if run.prefill_tok_s else ""
    return f"{run.decode_tok_s:.1f} tok/s after {run.prompt_tokens} tokens{prefill}, first token {run.ttft_s:.1f} s"


def _streams(streams: Streams) -> Verdict:
    key, text = f"decode of {streams.count} streams", "answers"
    if streams.verdict != "ok" or streams.together_tok_s is None:
        return Verdict(key, "inconclusive", "nothing", text, streams.reason)
    if streams.foreign:
        return Verdict(key, "inconclusive", f"{streams.foreign} foreign requests", "none", f"busy; {_BUSY_DO}")
    return Verdict(key, "pass", f"{streams.together_tok_s:.1f} tok/s together", text, "reported, not judged")


def _probe(record: Record) -> Iterator[Verdict]:
    if not record.order.get("probe"):
        return
    key, text = "decode long prompt", f"an answer in {record.order.get('probe_s', 0):g} s"
    probe = record.probe
    if probe is None:
        yield Verdict(key, "inconclusive", "nothing", text, record.stopped or "it was not asked")
    elif probe.kind in ("hang", "cut"):
        why = "a prompt over about a tenth of the token pool can hang sglang for good (sglang-kt #60)"
        do = "restart the server; raise the token pool or lower the context that is offered"
        yield Verdict(key, "fail", probe.reason, text, why, do)
    elif probe.verdict == "error":
        yield Verdict(key, "inconclusive", "nothing", text, probe.reason)
    else:
        yield Verdict(
            key, "pass", f"{probe.prompt_tokens} tokens, first one after {probe.ttft_s:.1f} s", text, "no hang"
        )
