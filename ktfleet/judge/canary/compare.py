"""Whether an answer is right: what code returned, or words. Pure; nothing in here is run by what it compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ktfleet.measure.tasks import Case, Task


def wrong_case(task: Task, results: Sequence[Any]) -> str | None:
    """The first case that is not as expected, in words; None: all are."""
    for number, (case, result) in enumerate(zip(task.cases, results, strict=True), 1):
        ended, value = result if isinstance(result, list) and len(result) == 2 else ("returned", result)
        if ended != "returned":
            return f"case {number} raised {_short(value)}"
        if not CHECKS[task.check](case, value):
            called = ", ".join(_short(argument) for argument in case.arguments)
            return f"case {number}, {task.function}({called}), returned {_short(value)}"
    return None


def wrong_words(task: Task, text: str) -> str | None:
    """Why the words of an answer are not right; None: they are."""
    numbers = [int(found) for found in re.findall(r"(?<![\w.])-?\d+(?![\w]|\.\d)", text.replace("**", ""))]
    expected = task.cases[0].expected
    if task.check == "number":
        right = numbers[-1:] == [expected]
    elif task.check == "numbers":  # "below 50" may be said again
        right = numbers[-len(expected) :] == expected and set(numbers) <= {*expected, 50}
    else:
        right = bool(re.search(rf"(?<!\d){expected}(?!\d)", text))
    return None if right else f"the answer is {_short(text.strip())}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return ascii(text if len(text) <= 60 else text[:57] + "...")[1:-1]


def same(one: Any, other: Any) -> bool:
    """Equal in type too, so that 1 is not True; a tuple counts as a list."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def _groups(case: Case, value: Any) -> bool:
    texts = isinstance(value, list) and all(isinstance(g, list) and all(isinstance(t, str) for t in g) for g in value)
    return texts and sorted(map(sorted, value)) == sorted(map(sorted, case.expected))


def _pair(case: Case, value: Any) -> bool:
    numbers, target = case.arguments
    if not case.expected:
        return value in ([], None)
    if not (isinstance(value, list) and len(value) == 2 and all(_index(i, numbers) for i in value)):
        return False
    return bool(value[0] != value[1] and numbers[value[0]] + numbers[value[1]] == target)


def _found(case: Case, value: Any) -> bool:
    numbers, wanted = case.arguments
    if case.expected == -1:
        return type(value) is int and value == -1
    return _index(value, numbers) and bool(numbers[value] == wanted)


def _index(value: Any, numbers: Sequence[int]) -> bool:
    return type(value) is int and 0 <= value < len(numbers)


CHECKS: dict[str, Callable[[Case, Any], bool]] = {
    "equal": lambda case, value: same(case.expected, value),
    "groups": _groups,
    "pair": _pair,
    "index": _found,
}
