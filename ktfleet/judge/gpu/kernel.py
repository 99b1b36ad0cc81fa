"""The proof that counts: machine code for exactly this card was compiled, ran, and computed right."""

from __future__ import annotations

from ktfleet.config import Gpu
from ktfleet.judge.gpu.gaps import WITHOUT_LOAD, unknown
from ktfleet.measure.gpu_record import Card, Record, Run
from ktfleet.translate import translate
from ktfleet.verdict import Verdict

_WHY = "a driver that lists a card can still be unable to run anything on it"


def judge_kernel(key: str, wanted: Gpu, record: Record, card: Card) -> Verdict:
    """Compiled, run, checked."""
    code, build = f"sm_{wanted.architecture} code that computes right", record.kernel_build
    if build is None:
        return unknown(key, code, record.why("kernel_build", "toolkit") if record.loaded else WITHOUT_LOAD)
    if build.arch != wanted.architecture:
        return unknown(key, code, f"it was built for sm_{build.arch}")
    if not build.built:
        return _said(key, code, "it does not compile", build.text)
    if card.run is None:
        return unknown(key, code, record.why(f"cards.{card.index}.run"))
    return _ran(key, code, wanted, card.run)


def _ran(key: str, code: str, wanted: Gpu, run: Run) -> Verdict:
    result = run.result
    if result is None:
        return _said(key, code, f"it ended with {run.exit}", run.text or "")
    if result.wrong:
        do = "do not serve with this card: reset all clocks to their defaults, reseat it, then replace it"
        return Verdict(key, "fail", f"{result.wrong} wrong numbers", code, "the card computes wrong", do)
    if result.architecture is None:
        return unknown(key, code, "it did not tell for which architecture its code is")
    major, minor = wanted.capability
    if run.exit or result.architecture != major * 100 + minor * 10:
        seen = f"exit {run.exit}, code for {result.architecture}"
        return Verdict(key, "fail", seen, code, _WHY, "see which nvcc built it")
    copy = f", {result.to_card_gb_s:.1f} GB/s to the card" if result.to_card_gb_s else ""
    return Verdict(key, "pass", f"{result.launches} launches right in {result.seconds:.1f} s{copy}", code, _WHY)


def _said(key: str, code: str, what: str, text: str) -> Verdict:
    """A failure in its own words, translated where we know them."""
    known = translate(text)
    if known:
        return Verdict(key, "fail", f"{what}: {known.seen}", code, known.what, known.do)
    lines = [line for line in text.splitlines() if line.strip()]
    telling = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no word")
    return Verdict(
        key, "fail", f"{what}: '{telling.strip()[:160]}'", code, _WHY, "see the whole text with --load there"
    )
