"""The API check as pyinfra really prepares and executes it."""

from __future__ import annotations

from typing import Any

from pyinfra.api.deploy import add_deploy

from checks import api
from ktfleet import results
from ktfleet.plan.places import MEASURE, STACK_PYTHON
from tests.fake.hosts import execute, fleet
from tests.fake.measuring import Connector, MeasuredHost
from tests.states import converged, served

PLAN = served()
SAID = {"text": "a harbour", "finish": "stop", "prompt_tokens": 9, "completion_tokens": 5}
CALLED = {
    **SAID,
    "text": "",
    "finish": "tool_calls",
    "calls": [{"name": "get_weather", "arguments": '{"city": "Paris"}'}],
}
THOUGHT = {**SAID, "reasoning": "let me see"}
TRIES = {
    "models": {"models": ["DeepSeek-V4-Flash"]},
    **dict.fromkeys(("chat", "chat_stream", "completion", "completion_stream", "tool_result"), SAID),
    **dict.fromkeys(("tool", "tool_stream"), CALLED),
    **dict.fromkeys(("reasoning", "reasoning_stream"), THOUGHT),
}


def check(measured: Any) -> tuple[bool, MeasuredHost]:
    fake = MeasuredHost("ws01", converged(PLAN), measured=measured)
    with fleet(fake, connector=Connector) as (state, _):
        return execute(state, [(api.check, PLAN)]), fake


def test_it_runs_with_the_servers_python_as_the_services_user() -> None:
    good, fake = check({"schema": 1, "tries": TRIES})
    assert good
    assert fake.ran[0].startswith(f"timeout -k 10 1800 sudo -H -u ktfleet {STACK_PYTHON} -I {MEASURE}/measure.pyz api ")
    assert {verdict.result for verdict in results.verdicts("ws01")["api"]} == {"pass"}


def test_a_call_that_came_as_text_fails_the_host_and_no_answer_is_inconclusive() -> None:
    assert not check({"schema": 1, "tries": {**TRIES, "tool": SAID}})[0]
    assert [verdict.key for verdict in results.verdicts("ws01")["api"] if not verdict.good] == ["api tool"]
    assert not check(None)[0]
    assert [verdict.result for verdict in results.verdicts("ws01")["api"]] == ["inconclusive"]


def test_a_dry_run_tries_nothing() -> None:
    fake = MeasuredHost("ws01", converged(PLAN), measured={"schema": 1, "tries": TRIES})
    with fleet(fake, connector=Connector, check_for_changes=True) as (state, _):
        add_deploy(state, api.check, PLAN)
    assert (fake.uploads, fake.commands, fake.ran) == ([], [], [])
