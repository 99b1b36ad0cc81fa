"""Verdicts on the canary: what a server answered and what its code returned in, one verdict a question out."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.judge.canary.compare import wrong_case, wrong_words
from ktfleet.judge.canary.garbage import garbage
from ktfleet.measure import extract
from ktfleet.measure.canary_record import Asked, Record, Run
from ktfleet.measure.tasks import BY_NAME, Task
from ktfleet.verdict import Result, Verdict

KEY = "canary"
WANTED = "a right answer"
_WORST: tuple[Result, ...] = ("fail", "inconclusive", "pass", "skipped")
_WHY = "a fast, healthy server can write nonsense: wrong weights, a lost clamp, a kernel for another CPU"
_DO = "compare recipe, weights and kernel variant with a twin; ask a reference server; do not serve"


def judge(record: Record | None) -> tuple[Verdict, ...]:
    """A verdict a question, one on repetition. No speed excuses any of them."""
    if record is None:
        return (Verdict(KEY, "inconclusive", "nothing", "the measurement's answer", "it could not be run"),)
    if not record.ready.ready:
        return (Verdict(KEY, "inconclusive", "no ready server", "/health and one token", record.ready.why),)
    return (*map(judge_answer, record.asked), *_missing(record), *_again(record))


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of a measurement and its end: nothing."""
    why = "the measurement was begun and has not ended"
    return (Verdict(KEY, "inconclusive", "nothing", "the measurement's answer", why),)


def judge_answer(asked: Asked) -> Verdict:
    """One question."""
    task, key = BY_NAME[asked.task], f"{KEY} {asked.task}"
    if asked.verdict == "error":
        return Verdict(key, "inconclusive", "no answer", WANTED, asked.reason)
    form = garbage(asked.text) if asked.text.strip() else garbage(asked.reasoning)
    words = extract.answer(asked.text)
    if form and (asked.text.strip() or asked.finish != "length"):
        return Verdict(key, "fail", f"garbage: {form}", WANTED, _WHY, _DO)
    if not words:
        if asked.finish == "length" or words is None:
            why = f"reasoning ate the budget, in {asked.attempts} attempts: give it more, or switch thinking off"
            return Verdict(key, "inconclusive", "no answer yet", WANTED, why)
        return Verdict(key, "fail", "garbage: nothing behind the reasoning", WANTED, _WHY, _DO)
    return _compared(key, task, asked, words)


def _compared(key: str, task: Task, asked: Asked, words: str) -> Verdict:
    if asked.run.ended == "no sandbox":
        return Verdict(key, "inconclusive", "code that was not run", WANTED, asked.run.why)
    wrong = _wrong(task, asked.run, words)
    if wrong is None:
        return Verdict(key, "pass", f"right in {len(task.cases)} of {len(task.cases)} cases", WANTED, _WHY)
    if asked.finish == "length" and asked.run.ended == "no code":
        return Verdict(key, "inconclusive", "an answer that was cut off", WANTED, "the budget was too small for it")
    if asked.reference:
        other = _wrong(task, asked.reference.run, extract.answer(asked.reference.text) or "")
        if other is not None:
            why = f"the reference server is wrong too ({other}): the question is too hard for this model"
            return Verdict(key, "inconclusive", wrong, WANTED, why)
        return Verdict(key, "fail", wrong, WANTED, f"{_WHY}; the reference server answers it right", _DO)
    return Verdict(key, "fail", wrong, WANTED, _WHY, _DO)


def _wrong(task: Task, run: Run, words: str) -> str | None:
    if task.function is None:
        return wrong_words(task, words)
    if run.ended != "returned":
        return f"{run.ended}: {run.why}" if run.why else run.ended
    if len(run.results) != len(task.cases):
        return f"{len(run.results)} results of {len(task.cases)}"
    return wrong_case(task, run.results)


def _missing(record: Record) -> Iterator[Verdict]:
    """Questions that were to be asked and were not: never a pass."""
    done = {asked.task for asked in record.asked}
    for name in record.order.get("tasks", ()):
        if name not in done:
            yield Verdict(f"{KEY} {name}", "inconclusive", "not asked", WANTED, record.stopped or "it was not told why")


def _again(record: Record) -> Iterator[Verdict]:
    """The same question at temperature 0. Other words may come of another order of additions; garbage may not."""
    twice = [asked for asked in record.asked if asked.again is not None]
    if not twice:
        return
    key, wanted = f"{KEY} repetition", "the same answers at temperature 0"
    equal = sum(asked.again == asked.text for asked in twice)
    seen = f"{equal} of {len(twice)} the same"
    bad = next((asked for asked in twice if asked.again != asked.text and garbage(asked.again or "")), None)
    if bad:
        yield Verdict(key, "fail", f"{bad.task}: garbage the second time", wanted, _WHY, _DO)
    elif not equal and len(twice) > 1:
        why = "no answer came twice: computed is something else each time, or the server samples all the same"
        yield Verdict(key, "fail", seen, wanted, why, "see that the server honours temperature 0; then compare kernels")
    else:
        yield Verdict(key, "pass", seen, wanted, "rounding differs with the batch, so some may differ")


def by_task(all_asked: tuple[Asked, ...]) -> dict[str, Verdict]:
    """A verdict a task; where one has several answers, the worst of them."""
    verdicts: dict[str, list[Verdict]] = {}
    for asked in all_asked:
        verdicts.setdefault(asked.task, []).append(judge_answer(asked))
    return {task: min(found, key=lambda verdict: _WORST.index(verdict.result)) for task, found in verdicts.items()}


def overall(verdicts: tuple[Verdict, ...]) -> Result:
    """The worst of all."""
    return min((verdict.result for verdict in verdicts), key=_WORST.index, default="inconclusive")
