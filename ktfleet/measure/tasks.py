"""The canary's questions with their hidden cases: data. Only the standard library: it runs on the host.

A model that is whole solves all of them; one whose weights were converted wrongly, whose clamp was lost, or which ran
on a broken kernel does not. The cases go beyond what a prompt shows: empty, duplicates, negative, Unicode, large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LONG_WORDS = 6500
"""Words of the long prompts: about 8k tokens."""


@dataclass(frozen=True)
class Case:
    """One call: its arguments, what it has to return."""

    arguments: tuple[Any, ...]
    expected: Any


@dataclass(frozen=True)
class Task:
    """One question. With a `function` the answer is code with it, else words.

    check: how an answer is compared (judge/canary/compare.py): "equal", "groups", "pair", "index", "number",
    "numbers", "contains". long: asked behind a long text; `needle` is hidden within it.
    """

    name: str
    prompt: str
    check: str = "equal"
    function: str | None = None
    cases: tuple[Case, ...] = ()
    long: bool = False
    needle: str = ""


def _code(name: str, what: str, *cases: tuple[tuple[Any, ...], Any], check: str = "equal") -> Task:
    prompt = f"Write a Python function `{name}` that {what} Use only the standard library. Answer with one code block."
    return Task(name, prompt, check, name, tuple(Case(arguments, expected) for arguments, expected in cases))


def _words(name: str, prompt: str, check: str, expected: Any) -> Task:
    return Task(name, prompt, check, None, (Case((), expected),))


_MANY = 20_000
_BIG_FIB = 280571172992510140037611932413038677189525

TWO_SUM = _code(
    "two_sum",
    "takes a list of integers and a target, and returns the two indices whose values add up to the target, as a list; "
    "an empty list if there are none. The same element is not used twice. It must be fast for long lists.",
    (([2, 7, 11, 15], 9), True), (([3, 3], 6), True), (([3, 2, 4], 6), True), (([-3, 4, 3, 90], 0), True),
    (([], 0), False), (([5], 10), False), (([1, 2, 3], 100), False), (([0, 4, 3, 0], 0), True),
    (([*range(0, 2 * _MANY, 2), 1, 3], 4), True), (([*range(1, 2 * _MANY, 2), 2 * _MANY], 4 * _MANY - 1), True),
    check="pair",
)  # fmt: skip

TASKS: tuple[Task, ...] = (
    _code(
        "is_palindrome",
        "takes a string and returns True if its letters and digits, of any language and ignoring case, read the same "
        "backwards, else False. The empty string is a palindrome.",
        (("A man, a plan, a canal: Panama",), True), (("race a car",), False), (("",), True), ((" ,.!",), True),
        (("0P",), False), (("ab1ba",), True), (("Привет",), False), (("Уж редко рукою окурок держу",), True),
        (("été",), True), (("ab",), False), (("xy" * _MANY,), False), (("xyx" * (_MANY + 1),), True),
    ),
    TWO_SUM,
    _code(
        "binary_search",
        "takes a sorted list of integers and a value, and returns an index at which the value stands, or -1.",
        (([1, 3, 5, 7, 9], 7), 3), (([1, 3, 5, 7, 9], 1), 0), (([1, 3, 5, 7, 9], 9), 4), (([1, 3, 5], 4), -1),
        (([], 1), -1), (([5], 5), 0), (([5], 6), -1), (([2, 2, 2, 2], 2), 0), (([-9, -4, 0, 4], -9), 0),
        (([1, 2], 0), -1), ((list(range(0, 3 * _MANY, 3)), 3 * (_MANY - 1)), _MANY - 1),
        check="index",
    ),
    _code(
        "valid_parens",
        "takes a string of the characters ()[]{} and returns True if every bracket is closed by its own kind in the "
        "right order, else False.",
        (("()",), True), (("()[]{}",), True), (("(]",), False), (("([)]",), False), (("{[]}",), True), (("",), True),
        (("(",), False), (("]",), False), (("((",), False), (("())",), False), (("[" * 5000 + "]" * 5000,), True),
        (("(" * 5000 + "]" * 5000,), False),
    ),
    _code(
        "merge_intervals",
        "takes a list of [start, end] intervals in any order and returns the merged ones, sorted, as lists; intervals "
        "that touch are merged.",
        (([[1, 3], [2, 6], [8, 10], [15, 18]],), [[1, 6], [8, 10], [15, 18]]), (([[1, 4], [4, 5]],), [[1, 5]]),
        (([],), []), (([[5, 7]],), [[5, 7]]), (([[4, 5], [1, 2]],), [[1, 2], [4, 5]]), (([[1, 9], [2, 3]],), [[1, 9]]),
        (([[2, 2], [2, 2]],), [[2, 2]]), (([[-5, -1], [-3, 4]],), [[-5, 4]]),
        (([[n, n + 1] for n in range(0, _MANY, 3)],), [[n, n + 1] for n in range(0, _MANY, 3)]),
    ),
    _code(
        "fib",
        "takes n and returns the n-th Fibonacci number, with fib(0) = 0 and fib(1) = 1. It must be fast for n = 200.",
        ((0,), 0), ((1,), 1), ((2,), 1), ((3,), 2), ((10,), 55), ((30,), 832040), ((90,), 2880067194370816120),
        ((200,), _BIG_FIB),
    ),
    _code(
        "longest_common_prefix",
        "takes a list of strings and returns the longest prefix that all of them share; an empty list has none: ''.",
        ((["flower", "flow", "flight"],), "fl"), ((["dog", "car"],), ""), (([],), ""), (([""],), ""), ((["a"],), "a"),
        ((["a", ""],), ""), ((["ab", "abc", "ab"],), "ab"), ((["straße", "strafe"],), "stra"), ((["x", "x"],), "x"),
        ((["é" * _MANY, "é" * _MANY + "a"],), "é" * _MANY),
    ),
    _code(
        "group_anagrams",
        "takes a list of strings and returns the groups of anagrams as a list of lists, in any order.",
        ((["eat", "tea", "tan", "ate", "nat", "bat"],), [["eat", "tea", "ate"], ["tan", "nat"], ["bat"]]),
        (([],), []), (([""],), [[""]]), ((["", ""],), [["", ""]]), ((["a"],), [["a"]]),
        ((["ab", "ab", "ba"],), [["ab", "ab", "ba"]]), ((["ñu", "uñ", "nu"],), [["ñu", "uñ"], ["nu"]]),
        ((["ddddddddddg", "dgggggggggg"],), [["ddddddddddg"], ["dgggggggggg"]]), ((["Ab", "ba"],), [["Ab"], ["ba"]]),
        check="groups",
    ),
    _words("arithmetic", "What is 17 * 23 - 148 / 4? Answer with the number alone.", "number", 354),
    _words(
        "primes", "List all prime numbers below 50 in ascending order, separated by commas, and nothing else.",
        "numbers", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47],
    ),
    Task(
        "long_needle", "What is the number of the locker in the text above? Answer with the number alone.", "contains",
        None, (Case((), "73914"),), long=True, needle="The number of the locker is 73914.",
    ),
    Task("long_code", TWO_SUM.prompt, TWO_SUM.check, TWO_SUM.function, TWO_SUM.cases, long=True),
)  # fmt: skip

BY_NAME: dict[str, Task] = {task.name: task for task in TASKS}


def prompt(task: Task, words: Callable[[int, int, str], str]) -> str:
    """What is asked; `words` makes a text of that many words in front of a question."""
    if not task.long:
        return task.prompt
    before, behind = words(LONG_WORDS // 2, 71, ""), words(LONG_WORDS // 2, 72, "")
    return f"{before.strip()} {task.needle} {behind.strip()}\n\n{task.prompt}"
