"""The tries of the OpenAI interface beside a server that nobody here wrote."""

from __future__ import annotations

from pathlib import Path

from ktfleet.judge.api import Wanted, judge
from ktfleet.measure.api import COMPLETE, Order, measure
from ktfleet.measure.api_record import Record
from tests.peer.running import serving


def test_llama_cpps_server_answers_and_what_its_model_cannot_do_is_seen(tmp_path: Path) -> None:
    """Its tiny model makes no call and does not think: a parser alone is not enough."""
    with serving(tmp_path, {COMPLETE: [" wet", " and", " windy"]}) as server:
        record = Record.model_validate(measure(Order(server.url, tokens=24)))
    (name,) = record.tries["models"].models
    found = {verdict.key: verdict for verdict in judge(Wanted(name, tools=True, reasoning=True), record)}
    assert record.tries["completion"].text == record.tries["completion_stream"].text == " wet and windy"
    assert {key for key, verdict in found.items() if verdict.good} == {
        "api models", "api chat", "api chat, stream", "api completion", "api completion, stream", "api tool, result",
    }  # fmt: skip
    assert "no text" not in found["api tool"].seen
