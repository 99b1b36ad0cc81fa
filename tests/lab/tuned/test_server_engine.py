"""What the checks say of a server with real worker pools, in order: as it should be, then each way to be bad.

Each start of it takes half a minute; ways that do not hide each other share one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from statistics import median

import pytest

from ktfleet.judge.decode import judge
from ktfleet.judge.decode.wanted import Setup, Wanted
from ktfleet.measure.decode_record import Record
from ktfleet.plan.places import SERVER_JOB
from tests import servers
from tests.lab import locked, serving
from tests.lab.machine import Machine
from tests.lab.serving import CHILD, UNIT, Host

pytestmark = pytest.mark.lab

RATE = 28.0
THREADS = f"""for task in /proc/$({CHILD})/task/*
do echo $(cat $task/comm) $(grep Cpus_allowed_list $task/status)
done"""
PLACES = {"numa_0_m_0": "0", "numa_0_t_1": "2", "numa_1_m_0": "4", "numa_1_t_1": "6"}
"""qemu numbers siblings 0-1: a worker on the first of each core, and 1, 3, 5, 7 for everybody else."""
OTHERS = "1,3,5,7"


@pytest.fixture(scope="module")
def host(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    (kt_kernel,) = locked.fetch(locked.lines("kt-kernel"))
    server = servers.write_engine(tmp_path_factory.mktemp("wheel"), kt_kernel)
    with serving.host(machine, tmp_path_factory.mktemp("engine"), "tests/lab/engine.toml", server) as made:
        yield made


def rates(record: Record, prompt: str) -> list[float]:
    return [run.decode_tok_s or 0.0 for run in record.runs if run.prompt == prompt]


def test_its_threads_and_experts_are_where_the_plan_puts_them(host: Host) -> None:
    run = host.deploy("deploy.py", engine={"rate": RATE, "burst": 5})
    assert run.code == 0, run.said
    lines = [line.split() for line in host.machine.run(THREADS, sudo=True).stdout.splitlines()]
    threads = [(name, cpus) for name, _, cpus in lines]
    assert dict(pair for pair in threads if pair[0].startswith("numa_")) == PLACES
    assert {cpus for name, cpus in threads if not name.startswith("numa_")} == {OTHERS}
    run = host.deploy("checks/placement.py", engine={"rate": RATE, "burst": 5})
    assert run.code == 0, run.said
    results = {key: verdict["result"] for key, verdict in run.checks["placement"].items()}
    assert results == {
        "workers of node 0": "pass", "workers of node 1": "pass", "other threads": "pass",
        "experts of node 0": "pass", "experts of node 1": "pass", "experts' huge pages": "pass",
        "the card's interrupts": "skipped",
    }  # fmt: skip


def test_28_tok_s_in_bursts_are_measured_as_28(host: Host) -> None:
    record = host.measured()
    for prompt in ("prose", "code"):
        assert len(rates(record, prompt)) == 5
        assert median(rates(record, prompt)) == pytest.approx(RATE, rel=0.01)
    assert {run.foreign for run in record.runs} == {0}
    assert max(run.longest_gap_s or 0 for run in record.runs) > 3 / RATE, "several come at once"


@pytest.mark.long
def test_the_check_measures_28_too(host: Host) -> None:
    """Three minutes."""
    run = host.deploy("checks/decode.py", engine={"rate": RATE, "burst": 5})
    verdicts = run.checks["decode"]
    for key in ("decode of prose", "decode of code"):
        assert verdicts[key]["result"] == "pass", run.said
        assert float(verdicts[key]["seen"].split()[0]) == pytest.approx(RATE, rel=0.01)
    assert run.code == 0, run.said


BAD = {"main_on_worker": True, "says": "the", "rate": 20_000.0, "burst": 64}


def test_a_main_thread_on_a_worker_s_core_is_named(host: Host) -> None:
    run = host.deploy(engine=BAD)
    assert run.code == 0, f"it serves, nobody has looked yet: {run.said}"
    run = host.deploy("checks/placement.py", engine=BAD)
    assert run.code != 0
    bad = {key: verdict for key, verdict in run.checks["placement"].items() if verdict["result"] == "fail"}
    assert set(bad) == {"thread python"}
    assert re.fullmatch(r"may run on 0 \(thread \d+, last on CPU \d\)", bad["thread python"]["seen"])
    assert "[lab] thread python: seen may run on 0 (thread " in run.said


def test_garbage_fails_the_canary_at_any_speed(host: Host) -> None:
    run = host.deploy("checks/canary.py", engine=BAD)
    assert run.code != 0
    verdicts = {key: verdict for key, verdict in run.checks["canary"].items() if key != "canary repetition"}
    assert len(verdicts) == 12
    assert all(each["result"] == "fail" and each["seen"].startswith("garbage: ") for each in verdicts.values())


WORSE = {"rate": 1000.0, "hang_over": 400, "crash_over": 200}


@pytest.mark.long
def test_a_hang_in_a_long_prompt_ends_in_its_time(host: Host) -> None:
    run = host.deploy(engine=WORSE)
    assert run.code == 0, run.said
    record = host.measured(repeats=1, probe=500, probe_s=10.0, idle_s=10.0)
    assert record.probe
    assert (record.probe.verdict, record.probe.kind) == ("error", "hang")
    verdicts = {each.key: each for each in judge(Wanted(Setup("none", 1, "here")), record)}
    assert verdicts["decode long prompt"].result == "fail"


@pytest.mark.long
def test_a_crash_is_told_and_it_comes_back(host: Host) -> None:
    before = host.main()
    run = host.deploy("checks/decode.py", engine=WORSE)
    assert run.code != 0
    assert run.checks["decode"]["decode of prose"]["result"] == "inconclusive", run.said
    assert "before it was finished" in run.checks["decode"]["decode of prose"]["why"], run.said
    host.wait_until(lambda: host.main() not in ("0", before) and host.serves())
    journal = host.machine.run(f"journalctl -u {UNIT} --no-pager", sudo=True).stdout
    assert "ktfleet: the server ended: seen signal 11" in journal


def test_a_worker_too_many_is_seen_by_its_own_words_and_in_its_place(host: Host) -> None:
    """Somebody changes what the unit reads: no deploy would."""
    change = '/"--kt-cpuinfer",/ { n; s/4/6/ }'
    host.machine.run(f"sed -i {shlex.quote(change)} {SERVER_JOB} && systemctl restart {UNIT}", sudo=True)
    host.wait_until(lambda: "found no core of its own" in host.told())
    run = host.deploy("checks/placement.py", engine=WORSE)
    assert run.code != 0
    assert "worker numa_0_t_2: seen may run on 0-3" in run.said, run.said


@pytest.mark.long
def test_one_that_starts_too_slowly_is_given_up_and_said_how_far_it_was(host: Host) -> None:
    run = host.deploy(engine={"layer_s": 60.0}, start_limit_s=60)
    assert run.code != 0
    assert "loading layer 1 of 2" in run.said
    assert "the server is not ready in time" in run.said, run.said
