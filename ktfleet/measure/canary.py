"""The coding canary: ask a running server small questions, run the code that it answers in a sandbox, tell what came.

It decides nothing: what each call returned is told, `judge/canary/` compares. Only the standard library: it runs on the
host.
"""

from __future__ import annotations

import json
import pkgutil
from dataclasses import asdict, dataclass, field
from typing import Any

from ktfleet.measure import extract, prompts, sandbox
from ktfleet.measure.ask import Server, complete
from ktfleet.measure.serving import connect, wait_until_ready
from ktfleet.measure.stream import Limits
from ktfleet.measure.tasks import TASKS, Task, prompt

SCHEMA = 1
LARGER = 4
"""How many times the budget of the one retry is, when reasoning ate the first."""


@dataclass(frozen=True)
class Order:
    """What to ask. tokens: the budget of an answer. twice: ask the short questions again, for comparison.

    reference: the url of an unquantised server of the same model, asked the same; None: there is none.
    """

    url: str
    model: str | None = None
    key_file: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = tuple(task.name for task in TASKS)
    tokens: int = 1024
    twice: bool = True
    reference: str | None = None
    reference_model: str | None = None
    ready_s: float = 600.0
    idle_s: float = 60.0
    first_s: float = 300.0


def measure(order: Order) -> dict[str, Any]:
    """Every question of the order, asked and run."""
    record: dict[str, Any] = {"schema": SCHEMA, "order": asdict(order), "asked": [], "sandbox": held()}
    try:
        server = connect(order.url, order.model, order.key_file, order.extra)
    except OSError as error:
        return {**record, "ready": {"ready": False, "waited_s": 0.0, "why": f"{order.key_file}: {error.strerror}"}}
    record["model"] = server.model
    record["ready"] = wait_until_ready(server, order.ready_s)
    if not record["ready"]["ready"]:
        return record
    reference = Server(order.reference, order.reference_model or server.model) if order.reference else None
    for task in (task for task in TASKS if task.name in order.tasks):
        asked = _ask(server, task, order)
        if order.twice and not task.long and asked["verdict"] != "error":
            asked["again"] = _ask(server, task, order)["text"]
        done = {"task": task.name, **asked, "run": run(task, asked["text"], record["sandbox"])}
        if reference:
            other = _ask(reference, task, order)
            done["reference"] = {"text": other["text"], "run": run(task, other["text"], record["sandbox"])}
        record["asked"].append(done)
        if asked["kind"] in ("hang", "unauthorised", "unknown-model"):
            record["stopped"] = f"{task.name}: {asked['reason']}"
            break
    return record


def held() -> str:
    """Why no code can be run; empty: the sandbox holds."""
    try:
        sandbox.check()
    except sandbox.NoSandbox as error:
        return str(error)
    return ""


def _ask(server: Server, task: Task, order: Order) -> dict[str, Any]:
    """One answer; where reasoning ate the budget, one more with a larger one."""
    for tokens in (order.tokens, order.tokens * LARGER):
        seen = complete(server, prompt(task, prompts.long), tokens, _limits(order, tokens))
        if not (seen.finish == "length" and not extract.answer(seen.text)):
            break
    return {
        "attempts": 1 if tokens == order.tokens else 2,
        "verdict": seen.verdict,
        "reason": seen.reason,
        "kind": seen.kind,
        "finish": seen.finish,
        "tokens": seen.tokens,
        "text": seen.text,
        "reasoning": seen.reasoning,
    }


def _limits(order: Order, tokens: int) -> Limits:
    return Limits(order.first_s, order.idle_s, order.first_s + tokens * 2.0)


def run(task: Task, text: str, no_sandbox: str) -> dict[str, Any]:
    """What the answer's code returned for each case.

    `ended`: "returned"; "none" (no code is asked for), "no answer", "no code", "no sandbox", "timeout", "crashed".
    `why` says more. results: ["returned", value] or ["raised", why] for each case.
    """
    if task.function is None:
        return {"ended": "none", "why": "", "results": []}
    words = extract.answer(text)
    if not words:
        return {"ended": "no answer", "why": "", "results": []}
    found = extract.candidates(words, task.function)
    if not found:
        return {"ended": "no code", "why": "nothing in the answer looks like code", "results": []}
    if no_sandbox:
        return {"ended": "no sandbox", "why": no_sandbox, "results": []}
    return _sandboxed(task, found)


def _sandboxed(task: Task, found: list[str]) -> dict[str, Any]:
    source = (pkgutil.get_data("ktfleet.measure", "runner.py") or b"").decode()
    given = {"candidates": found, "function": task.function, "calls": [case.arguments for case in task.cases]}
    done = sandbox.run(source, json.dumps(given).encode())
    if done.ended == "timeout":
        return {"ended": "timeout", "why": f"it ran for more than {sandbox.WALL_S:g} s", "results": []}
    crashed = {"ended": "crashed", "why": f"it ended by {done.ended} {done.code}", "results": []}
    try:
        said = json.loads(done.output)
        results = said["results"]
        if said["why"] is not None:
            return {"ended": "no code", "why": str(said["why"])[:200], "results": []}
        if not isinstance(results, list) or len(results) != len(task.cases):
            return crashed
    except (ValueError, KeyError, TypeError, RecursionError):
        return crashed
    return {"ended": "returned", "why": "", "results": results}
