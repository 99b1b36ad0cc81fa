"""Answers that somebody recorded: their code runs in this machine's sandbox."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ktfleet.measure.canary import held, run
from ktfleet.measure.canary_record import Asked, Run
from ktfleet.measure.tasks import BY_NAME
from ktfleet.problem import Problem, Refused
from ktfleet.validation import Strict

_DO = 'write a list like [{"task": "two_sum", "text": "what the model answered"}]'


class Answer(Strict):
    """One answer. `finish`: the server's finish_reason, "length" when it was cut off; `reasoning`: what came apart."""

    task: str
    text: str | None
    finish: str | None = None
    reasoning: str | None = None


def read(path: Path) -> tuple[Answer, ...]:
    """The answers of a file. Raises Refused."""
    what = f"--answers {path}"
    try:
        answers = TypeAdapter(tuple[Answer, ...]).validate_python(tuple(_list(path)))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            seen = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            seen = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise Refused((Problem(what, seen, "a JSON list of answers", _DO),)) from error
    unknown = [answer.task for answer in answers if answer.task not in BY_NAME]
    if unknown or not answers:
        raise Refused(tuple(map(_unknown, unknown)) or (Problem(what, "no answer in it", "one or more", _DO),))
    return answers


def _list(path: Path) -> list[object]:
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, list):
        raise ValueError(f"{type(data).__name__}, no list")
    return data


def _unknown(task: str) -> Problem:
    close = difflib.get_close_matches(task, BY_NAME, n=1)
    do = f"did you mean '{close[0]}'?" if close else "correct it"
    return Problem("an answer's task", f"'{task}'", f"one of {', '.join(BY_NAME)}", do)


def run_all(answers: tuple[Answer, ...]) -> tuple[Asked, ...]:
    """The answers with what their code returns."""
    no_sandbox = held()
    return tuple(
        Asked(
            task=answer.task,
            text=answer.text or "",
            finish=answer.finish,
            reasoning=answer.reasoning or "",
            run=Run.model_validate(run(BY_NAME[answer.task], answer.text or "", no_sandbox)),
        )
        for answer in answers
    )
