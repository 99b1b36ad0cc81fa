"""The judge of the canary: garbage by its form, right and wrong answers, what was not answered, what came twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.judge.canary import begun, by_task, judge, overall
from ktfleet.judge.canary.compare import same, wrong_words
from ktfleet.judge.canary.garbage import garbage
from ktfleet.measure.canary_record import Asked, Record
from ktfleet.measure.tasks import BY_NAME, TASKS, prompt
from ktfleet.verdict import Verdict
from tests.answers import ALL, RIGHT, WORDS, fenced


@pytest.mark.parametrize("text", [
    "", " \n", "!" * 200, "the the " * 30, "wall wall wall " * 50, "fine so far. " + "and then " * 60,
    "1 2 3 4 5 6 7 8 9 10\n" * 40, "\ufffd" * 9 + "abc", "abc\x00\x01\x02\x03\x04", "\ud800" * 20,
    "这个函数的作用是检查一个字符串是不是回文", "Конечно, вот функция, которая это делает.",
    "Here is the code. それでは、この関数を説明しましょう。まず最初に文字列を受け取ります。",
    "- " * 100, "a" * 500, "xyz123 " * 20 + "end", "".join(f"word{n} " for n in range(40)) * 9,
])  # fmt: skip
def test_garbage_is_found_by_its_form(text: str) -> None:
    assert garbage(text)


@pytest.mark.parametrize("text", [
    *ALL.values(), *RIGHT.values(), "354", "-1", "ok", "4, 4, 4, 4, 4, 4", "β = δ + µ, naïve façade",
    fenced("# 这个函数检查回文\ndef is_palindrome(s):\n    return s == s[::-1]\n"),
    "The word 'Привет, мир и все остальные' is no palindrome, so the function returns False for it.",
    fenced("\n".join(f"    assert fib({n}) == {n * 7}" for n in range(40))),
    "Result\n" + "=" * 40 + "\nThe sum is 12 and the product is 35.\n",
    "Step 1: think.\nStep 2: write.\nStep 3: test." * 2,
])  # fmt: skip
def test_an_answer_is_no_garbage(text: str) -> None:
    assert garbage(text) is None


@given(st.text(max_size=200))
def test_any_text_has_a_form(text: str) -> None:
    assert garbage(text) is None or garbage(text)


@pytest.mark.parametrize(("task", "text", "right"), [
    ("arithmetic", "17 * 23 = 391, minus 37 is **354**", True), ("arithmetic", "354.", True),
    ("arithmetic", "354 is wrong, it is 355", False), ("arithmetic", "354.5", False), ("arithmetic", "none", False),
    ("primes", f"The primes below 50 are: {WORDS['primes']}.", True), ("primes", WORDS["primes"] + ", 51", False),
    ("primes", "1, " + WORDS["primes"], False), ("long_needle", "The locker is 73914.", True),
    ("long_needle", "739140", False),
])  # fmt: skip
def test_answers_in_words(task: str, text: str, right: bool) -> None:
    assert (wrong_words(BY_NAME[task], text) is None) is right


def test_equal_is_equal_in_type() -> None:
    assert not same([1, (2, "a")], [1, [2, "b"]])
    assert same([1, [2, "a"]], [1, (2, "a")])
    assert not same(1, True)
    assert not same(1, 1.0)
    assert not same([1], [1, 1])


def returned(task: str) -> dict[str, Any]:
    """What right code returns."""
    values: list[Any] = []
    for case in BY_NAME[task].cases:
        if BY_NAME[task].check == "pair" and case.expected:
            numbers, target = case.arguments
            last = {n: i for i, n in enumerate(numbers)}
            first = next(i for i, n in enumerate(numbers) if last.get(target - n, i) != i)
            values.append([first, last[target - numbers[first]]])
        else:
            values.append([] if BY_NAME[task].check == "pair" else case.expected)
    return {"ended": "returned", "results": [["returned", value] for value in values]}


def answered(task: str = "fib", **more: Any) -> dict[str, Any]:
    ran = returned(task) if BY_NAME[task].function else {"ended": "none"}
    return {"task": task, "text": ALL[task], "finish": "stop", "run": ran, **more}


def record(*asked: dict[str, Any], **more: Any) -> Record:
    data = {"schema": 1, "ready": {"ready": True, "waited_s": 0.1}, "asked": asked, "order": {"tasks": []}}
    return Record.model_validate({**data, **more})


def results(measured: Record | None) -> dict[str, Verdict]:
    return {verdict.key: verdict for verdict in judge(measured)}


def test_a_model_that_is_right_passes() -> None:
    found = judge(record(*(answered(task, again=ALL[task]) for task in ALL), order={"tasks": list(ALL)}))
    assert [str(verdict) for verdict in found if verdict.result != "pass"] == []
    assert len(found) == len(TASKS) + 1
    assert overall(found) == "pass"


WRONG = {"ended": "returned", "results": [["returned", 7]] * 8}


def test_wrong_is_told_with_its_case_and_garbage_apart() -> None:
    seen = results(record(answered(run=WRONG)))["canary fib"]
    assert (seen.result, seen.seen) == ("fail", "case 1, fib(0), returned 7")
    seen = results(record(answered(text="the " * 100)))["canary fib"]
    assert (seen.result, seen.seen) == ("fail", "garbage: 'the' is 100 of 100 words")


@pytest.mark.parametrize(("more", "result", "words"), [
    ({"run": {"ended": "timeout", "why": "20 s"}}, "fail", "timeout: 20 s"),
    ({"run": {"ended": "crashed"}}, "fail", "crashed"),
    ({"run": {"ended": "returned", "results": []}}, "fail", "0 results of 8"),
    ({"run": {"ended": "returned", "results": [["raised", "KeyError: 3"]] * 8}}, "fail", "raised KeyError: 3"),
    ({"run": {"ended": "no sandbox", "why": "no bubblewrap"}}, "inconclusive", "no bubblewrap"),
    ({"verdict": "error", "reason": "nothing came", "text": ""}, "inconclusive", "nothing came"),
    ({"text": "", "reasoning": "hm", "finish": "length", "attempts": 2}, "inconclusive", "in 2 attempts"),
    ({"text": "", "reasoning": "no no " * 100, "finish": "length"}, "inconclusive", "reasoning ate"),
    ({"text": "", "finish": "stop"}, "fail", "garbage: it is empty"),
])  # fmt: skip
def test_each_end_has_its_verdict(more: dict[str, Any], result: str, words: str) -> None:
    seen = results(record(answered(**more)))["canary fib"]
    assert (seen.result, words in str(seen)) == (result, True), str(seen)


def test_a_reference_tells_a_broken_server_from_a_hard_question() -> None:
    good, bad = {"text": ALL["fib"], "run": returned("fib")}, {"text": ALL["fib"], "run": WRONG}
    assert "reference server answers it right" in results(record(answered(run=WRONG, reference=good)))["canary fib"].why
    seen = results(record(answered(run=WRONG, reference=bad)))["canary fib"]
    assert (seen.result, "too hard" in seen.why) == ("inconclusive", True)


def test_what_comes_twice_is_compared() -> None:
    def repetition(*again: str) -> Verdict:
        tasks = ("fib", "two_sum", "arithmetic")
        asked = (answered(task, again=text or ALL[task]) for task, text in zip(tasks, again, strict=True))
        return results(record(*asked))["canary repetition"]

    assert repetition("", "", "").seen == "3 of 3 the same"
    assert repetition("", "other words", "").result == "pass"
    assert repetition("other words", "other words", "355").result == "fail"
    assert repetition("", "", "!" * 100).seen == "arithmetic: garbage the second time"


def test_what_was_not_asked_is_no_pass() -> None:
    found = results(record(answered("fib"), order={"tasks": ["fib", "primes"]}, stopped="fib: it hung"))
    assert (found["canary primes"].result, found["canary primes"].why) == ("inconclusive", "fib: it hung")
    loading = record(ready={"ready": False, "waited_s": 600, "why": "/health says 503"})
    assert [v.result for v in (*judge(None), *begun(), *judge(loading))] == ["inconclusive"] * 3
    assert overall(()) == "inconclusive"


def test_of_several_answers_the_worst_counts() -> None:
    both = tuple(Asked.model_validate(data) for data in (answered(run=WRONG), answered()))
    assert by_task(both)["fib"].result == by_task(both[::-1])["fib"].result == "fail"


def test_long_questions_are_long_and_hold_their_needle() -> None:
    from ktfleet.measure.prompts import long

    text = prompt(BY_NAME["long_needle"], long)
    assert text.count("73914") == 1
    assert 0.4 < text.index("73914") / len(text) < 0.6
    assert 6000 < len(text.split()) < 8000
    assert text.endswith(BY_NAME["long_needle"].prompt)
    assert prompt(BY_NAME["fib"], long) == BY_NAME["fib"].prompt
