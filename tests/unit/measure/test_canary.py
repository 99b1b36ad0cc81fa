"""What becomes of answers: right ones in many styles, wrong and hostile ones. Their code runs, in the sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.judge.canary import by_task, overall
from ktfleet.measure import canary, extract, sandbox
from ktfleet.measure.recorded_answers import Answer, read, run_all
from ktfleet.measure.tasks import BY_NAME, TASKS
from ktfleet.problem import Refused
from ktfleet.verdict import Verdict
from tests.answers import ALL, RIGHT, fenced


def judged(task: str, text: str | None, **more: str) -> Verdict:
    return by_task(run_all((Answer(task=task, text=text, **more),)))[task]  # type: ignore[arg-type]


def test_the_sandbox_holds_here() -> None:
    sandbox.check()


def test_every_question_has_a_right_answer_that_passes() -> None:
    assert set(ALL) == set(BY_NAME)
    verdicts = by_task(run_all(tuple(Answer(task=task, text=text) for task, text in ALL.items())))
    assert {task: str(verdict) for task, verdict in verdicts.items() if verdict.result != "pass"} == {}
    assert overall(tuple(verdicts.values())) == "pass"


ANSWERS = Path(__file__).parents[2] / "fixtures" / "canary"


def answers(kind: str) -> list[Path]:
    """Files named TASK.WHAT.txt: each one answer."""
    found = sorted((ANSWERS / kind).glob("*.txt"))
    assert len(found) >= 10
    return found


def in_file(path: Path) -> Verdict:
    """The verdict on the answer in a file; CRLF stays CRLF."""
    return judged(path.name.partition(".")[0], path.read_bytes().decode())


@pytest.mark.parametrize("path", answers("styles"), ids=lambda path: path.stem)
def test_a_right_answer_passes_in_any_style(path: Path) -> None:
    verdict = in_file(path)
    assert verdict.result == "pass", str(verdict)


@pytest.mark.parametrize("path", [*answers("wrong"), *answers("hostile")], ids=lambda path: path.stem)
def test_wrong_and_hostile_answers_are_caught_in_bounded_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.run, "__defaults__", (1.5,))
    verdict = in_file(path)
    assert verdict.result == "fail", str(verdict)
    assert len(str(verdict).splitlines()) == 1


TRIES = """
import json, os, socket, subprocess
found = {}
def attempt(name, action):
    try:
        found[name] = str(action())[:80]
    except BaseException:
        pass
attempt("secret", lambda: open(SECRET).read())
attempt("passwd", lambda: open("/etc/passwd").read())
attempt("home", lambda: os.listdir("/root"))
attempt("write", lambda: open("/tmp/x", "w"))
attempt("own file", lambda: open("/usr/lib/x", "w"))
attempt("shm", lambda: open("/dev/shm/x", "w"))
attempt("network", lambda: socket.create_connection(("127.0.0.1", PORT), 1))
attempt("unix", lambda: os.listdir("/run"))
attempt("root", lambda: os.setuid(0))
attempt("mount", lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/tmp"], check=True))
attempt("kernel", lambda: open("/proc/sys/kernel/hostname", "w"))
attempt("environment", lambda: os.environ["KTFLEET_SECRET"])
print(json.dumps({"found": found, "uid": os.getuid(), "pids": [p for p in os.listdir("/proc") if p.isdigit()]}))
"""


def test_nothing_can_be_reached_from_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    secret = tmp_path / "secret"
    secret.write_text("secret")
    monkeypatch.setenv("KTFLEET_SECRET", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = TRIES.replace("SECRET)", f"{str(secret)!r})").replace("PORT", str(server.getsockname()[1]))
        seen = json.loads(sandbox.run(source, b"").output)
    assert (seen["found"], seen["uid"]) == ({}, sandbox.USER)
    assert len(seen["pids"]) <= 3


def test_what_hangs_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"mark_{os.getpid()}"
    source = f"import os, time\nif os.fork():\n    os.setsid()\ntime.sleep(1000)  # {mark}\n"
    assert sandbox.run(source, b"", 1.0).ended == "timeout"
    assert mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.replace(
        sys.executable, ""
    )


def test_without_a_sandbox_code_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    verdict = judged("fib", fenced(RIGHT["fib"]))
    assert verdict.result == "inconclusive"
    assert "install the package bubblewrap" in verdict.why
    assert judged("arithmetic", "354").result == "pass"


def test_a_sandbox_that_leaks_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    options = [option for option in sandbox._options() if option != "--unshare-net"]
    monkeypatch.setattr(sandbox, "_options", lambda: options)
    with pytest.raises(sandbox.NoSandbox, match=r'does not hold: .*"network": true'):
        sandbox.check()


def test_a_sandbox_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_options", lambda: ["--no-such-option"])
    with pytest.raises(sandbox.NoSandbox, match="bubblewrap does not work here"):
        sandbox.check()


@pytest.mark.parametrize(("text", "more", "result", "words"), [
    ("", {}, "fail", "garbage: it is empty"),
    (None, {"finish": "length", "reasoning": "Let me think about it"}, "inconclusive", "reasoning ate the budget"),
    ("<think>Let me think about it", {"finish": "length"}, "inconclusive", "reasoning ate the budget"),
    ("<think>done</think>", {}, "fail", "nothing behind the reasoning"),
    ("```python\ndef fib(n", {"finish": "length"}, "inconclusive", "the budget was too small"),
    ("<think>" + "no no " * 100, {"finish": "length"}, "fail", "garbage"),
])  # fmt: skip
def test_no_answer_is_told_apart_from_a_wrong_one(
    text: str | None, more: dict[str, str], result: str, words: str
) -> None:
    verdict = judged("fib", text, **more)
    assert (verdict.result, words in str(verdict)) == (result, True), str(verdict)


@given(st.text(max_size=300))
def test_no_text_breaks_the_search_for_code(text: str) -> None:
    words = extract.answer(text)
    assert len(extract.candidates(words or "", "fib")) <= extract.MOST


def test_the_last_definition_counts_and_pieces_are_limited() -> None:
    many = "".join(fenced(f"def fib(n):\n    return {n}\n") for n in range(20))
    found = extract.candidates(many, "fib")
    assert found[0].endswith("def fib(n):\n    return 19\n")
    assert found[1] == "def fib(n):\n    return 19\n"
    assert len(found) == extract.MOST


@pytest.mark.parametrize(("text", "words"), [
    ("{", "Expecting"), ("{}", "dict, no list"), ("[]", "no answer in it"), ('[{"task": "fib"}]', "Field required"),
    ('[{"task": "fibb", "text": ""}]', "did you mean 'fib'?"), ('[{"task": "fib", "text": 3}]', "valid string"),
])  # fmt: skip
def test_a_file_that_is_no_answers_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "answers.json"
    path.write_text(text)
    with pytest.raises(Refused, match=words.replace("?", r"\?")):
        read(path)


def test_the_budget_is_raised_once_when_reasoning_ate_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from ktfleet.measure.ask import Server
    from ktfleet.measure.stream import Reading

    budgets: list[int] = []

    def complete(server: object, prompt: str, tokens: int, limits: object) -> Reading:
        budgets.append(tokens)
        return Reading("ok", finish="stop" if tokens > 1024 else "length", text="354" if tokens > 1024 else "")

    monkeypatch.setattr(canary, "complete", complete)
    asked = canary._ask(Server("http://x"), BY_NAME["arithmetic"], canary.Order("http://x"))
    assert (budgets, asked["attempts"], asked["text"]) == ([1024, 4096], 2, "354")
    assert len(TASKS) == len(BY_NAME)
