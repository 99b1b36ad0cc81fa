"""Verdicts on the server as a service: its plan, the host's state and its answers in, one verdict a thing out."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.host.state import HostState
from ktfleet.judge import overlay
from ktfleet.measure.overlay_record import Seen
from ktfleet.measure.server_record import Record
from ktfleet.plan import Plan
from ktfleet.plan.server import proven
from ktfleet.verdict import Verdict, claimed

KEY = "server"
_TOKEN = "/health and one token"
_JOURNAL = "read `journalctl -u ktfleet-server`, run deploy.py again"


def judge(plan: Plan, state: HostState | None, record: Record | None) -> tuple[Verdict, ...]:
    """Everything that is known of it. Without one nothing is looked at."""
    if plan.server is None:
        return (Verdict(KEY, "skipped", "not looked at", "nothing", plan.not_served or ""),)
    if state is None:
        return (Verdict(KEY, "inconclusive", "nothing", "the probe's answer", "the host could not be probed"),)
    return (*map(claimed, proven.claims(plan, state)), *_answers(plan, record), *_overlay(plan, record))


def begun() -> tuple[Verdict, ...]:
    """What is known between the start of the check and its end: nothing."""
    return (Verdict(KEY, "inconclusive", "nothing", _TOKEN, "the check was begun and has not ended"),)


def _answers(plan: Plan, record: Record | None) -> Iterator[Verdict]:
    key, why = "server answers", "ready is a generated token: other pages answer long before"
    if record is None:
        yield Verdict(key, "inconclusive", "nothing", _TOKEN, "it could not be asked")
        return
    if record.ready.ready:
        yield Verdict(key, "pass", _TOKEN, _TOKEN, why)
    else:
        yield Verdict(key, "fail", record.ready.why, _TOKEN, why, _JOURNAL)
    if plan.fronted:
        yield from _front(record)


def _overlay(plan: Plan, record: Record | None) -> tuple[Verdict, ...]:
    seen = record.overlay if record else None
    if seen is None:
        seen = Seen(why="it could not be asked", now=0)
    status, gap = seen.read()
    return overlay.judge(plan.recipe, status, pids=seen.pids, now=seen.now, gap=gap)


def _front(record: Record) -> Iterator[Verdict]:
    """Its verdicts are about the key; what the server behind it answers has its own."""
    asks, lets, hides = "front asks for the key", "front takes the key", "key is not shown"
    if record.front is None or record.shown is None:
        for key, wanted in ((asks, "401"), (lets, "one token"), (hides, "nowhere")):
            yield Verdict(key, "inconclusive", "nothing", wanted, record.key or "it was not asked")
        return
    statuses = {record.front[name].status for name in ("without", "wrong")}
    seen = ", ".join(sorted(str(status or "no answer") for status in statuses))
    why, do = "whoever reaches the address would use the server", "look at `systemctl status ktfleet-front`"
    yield Verdict(asks, "pass" if statuses == {401} else "fail", seen, "401", why, do)
    right = record.front["right"]
    seen = "one token" if right.generated else right.why or str(right.status)
    why = "clients reach the server through it alone"
    yield Verdict(lets, "pass" if right.generated else "fail", seen, "one token", why, do)
    other = record.front["other path"].status
    why = "the server's other paths change weights and read files"
    seen = str(other or "no answer")
    yield Verdict("front hides other paths", "pass" if other == 404 else "fail", seen, "404", why, do)
    why = "every user of the host could read it there"
    seen = ", ".join(record.shown) or "nowhere"
    yield Verdict(
        hides, "fail" if record.shown else "pass", seen, "nowhere", why, "make another key, run deploy.py again"
    )
