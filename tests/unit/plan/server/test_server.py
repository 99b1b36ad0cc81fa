"""The server as a service: when there is one, what refuses it, what is done, what it is started from."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from ktfleet import plan, recipes, verdict
from ktfleet.config import Data, Key, Server, Workstation, parse
from ktfleet.host.state import Folder, HostState, Listener, Unit
from ktfleet.plan import Plan, cpu_lists, files, places, told
from ktfleet.plan.overlay.wanted import VARIABLE
from ktfleet.plan.request import request
from ktfleet.plan.server import changes, key
from ktfleet.plan.server.proven import FRONT, LAUNCH, READY
from ktfleet.problem import Refused
from ktfleet.server.job import parse as parse_job
from ktfleet.sources import Weights
from tests.states import converged, hosts, serving, with_data_disk, workstation

GOLDEN = Path(__file__).parents[3] / "golden" / "server"
UNITS = (places.SERVER_UNIT, places.FRONT_UNIT)
SERVED = {"data": Data(mount="/srv/models", label="models"), "weights": Weights()}
PUBLIC = Server(host="0.0.0.0", key=Key(command=("true",)))
RECIPE = "dsv4-flash-mxfp4"


def made(state: HostState | None = None, **config: Any) -> Plan:
    wanted = Workstation(**{"recipe": RECIPE, **SERVED, **config})
    return plan.make(state or workstation(), wanted, recipes.load(wanted.recipe, wanted.override, "ws01"))


def host(wanted: Plan) -> HostState:
    return with_data_disk(converged(wanted), wanted)


def text(wanted: Plan, path: str) -> str:
    return files.render(wanted, path).content or ""


@pytest.mark.parametrize(
    ("name", "config"), [("loopback", {}), ("public", {"server": PUBLIC}), ("no-card", {"gpu": None})]
)
def test_the_files_are_as_their_golden_ones(name: str, config: dict[str, Any]) -> None:
    """KTFLEET_GOLDEN=1 writes them."""
    wanted = made(**config)
    paths = [places.unit_file(unit) for unit in UNITS] + [places.FRONT_CONFIGURATION]
    found = "".join(f"==> {path}\n{text(wanted, path)}" for path in paths if text(wanted, path))
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("KTFLEET_GOLDEN"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        file.write_text(found)
    assert found == file.read_text()


@pytest.mark.parametrize("recipe", recipes.names())
@pytest.mark.parametrize("threads", [1, 2])
def test_what_must_not_stand_in_the_unit_does_not(recipe: str, threads: int) -> None:
    wanted = made(workstation(threads=threads), recipe=recipe)
    unit = text(wanted, places.unit_file(places.SERVER_UNIT))
    lines = [line for line in unit.splitlines() if not line.startswith("#")]
    for word in ("NUMAPolicy", "NUMAMask", "AllowedCPUs", "AllowedMemoryNodes", "LimitMEMLOCK=infinity",
                 "PassEnvironment", "EnvironmentFile", "Environment=", "None", "api-key"):  # fmt: skip
        assert not any(word in line for line in lines), word
    assert f"CPUAffinity={cpu_lists.ranges(wanted.launch.cpus)}" in lines
    job = parse_job(text(wanted, places.SERVER_JOB))
    assert (job.argv, job.environment) == (wanted.launch.argv, wanted.launch.environment)
    assert job == wanted.server


@given(hosts())
def test_the_unit_keeps_other_threads_off_the_workers(state: HostState) -> None:
    wanted = made(state)
    (line,) = [
        line for line in text(wanted, places.unit_file(places.SERVER_UNIT)).splitlines() if "CPUAffinity=" in line
    ]
    workers = {cpu for cpus in wanted.cores.worker_cpus.values() for cpu in cpus}
    assert not workers & set(cpu_lists.parse(line.partition("=")[2]))


def test_without_packages_or_weights_nothing_is_served_and_it_is_said() -> None:
    folder = "/srv/models/DeepSeek-V4-Flash/60d8d70770c6776ff598c94bb586a859a38244f1"
    for config, why in (
        ({"stack": None}, "nothing is served: the configuration says stack = None"),
        (
            {"weights": None},
            f"nothing is served: the configuration says weights = None, and the host has no {folder}",
        ),
    ):
        wanted = made(**config)
        assert (wanted.server, changes.skipped(wanted)) == (None, why)
        assert not any(text(wanted, places.unit_file(unit)) for unit in UNITS)
        state = workstation()
        steps = (changes.stop_unwanted, changes.prepare, changes.validate, changes.enable, changes.start,
                 changes.install_front, changes.serve_front)  # fmt: skip
        assert [step(wanted, state) for step in steps] == [()] * len(steps)
        assert changes.nothing_to_wait_for(wanted, state)
        assert not {LAUNCH, READY} & {judged.key for judged in verdict.drift(wanted, converged(wanted))}
    there = workstation().model_copy(update={"folders": {folder: Folder(uid=0, gid=0, mode="0755")}})
    assert made(there, weights=None).server is not None, "somebody else brought them"
    assert folder in request(Workstation(recipe=RECIPE)).folders, "so the probe asks for it"


def test_a_converged_host_gets_no_command() -> None:
    for config in ({}, {"server": PUBLIC}):
        wanted = made(**config)
        state = host(wanted)
        if wanted.fronted:
            installed = {**state.packages.installed, "haproxy": "2.6"}
            state = state.model_copy(update={"packages": state.packages.model_copy(update={"installed": installed})})
        steps = (changes.stop_unwanted, changes.prepare, changes.validate, changes.enable, changes.start,
                 changes.install_front, changes.serve_front)  # fmt: skip
        assert [step(wanted, state) for step in steps] == [()] * len(steps)
        assert changes.nothing_to_wait_for(wanted, state)
        assert [judged for judged in verdict.drift(wanted, state) if not judged.good] == []


@pytest.mark.parametrize(("update", "found"), [
    ({"override": {"context": {"running_requests": 2}}}, ("another command line",)),
    ({"override": {"environment": {"X": "1"}}}, ("another environment",)),
    ({"hugepages": {"policy": "hugetlb"}}, ("another environment",)),
    ({"cpuinfer": 38}, ("another CPUs", "another command line")),
    ({"wake_latency_us": None}, ()),
    ({"kernel_command_line": ["mitigations"]}, ()),
])  # fmt: skip
def test_it_is_started_again_only_when_something_of_it_changed(update: dict[str, Any], found: tuple[str, ...]) -> None:
    state = host(made())
    base = {"recipe": RECIPE, "data": {"mount": "/srv/models", "label": "models"}, "weights": {}}
    config = parse({**base, **update}, "ws01")
    other = plan.make(workstation(), config, recipes.load(RECIPE, config.override, "ws01"))
    assert changes.reasons(other, state) == found
    assert bool(changes.start(other, state)) == bool(found)
    assert bool(changes.validate(other, state)) == bool(found)


def test_other_packages_and_other_weights_are_another_server() -> None:
    wanted = made()
    state = host(wanted)
    assert wanted.server
    other = state.model_copy(update={"links": {**state.links, places.STACK: "/opt/ktfleet/stacks/0"}})
    assert changes.reasons(wanted, other) == ("another packages",)
    (manifest,) = wanted.server.watched["weights"]
    other = state.model_copy(update={"files": {**state.files, manifest: "another"}})
    assert changes.reasons(wanted, other) == ("another weights",)


@pytest.mark.parametrize("said", [None, "", "{", "[]", '{"command line": 1}'])
def test_a_server_that_does_not_say_what_it_was_started_from_is_started_again(said: str | None) -> None:
    wanted = made()
    state = host(wanted)
    broken = state.model_copy(update={"texts": {**state.texts, places.SERVER_STARTED: said}})
    assert len(changes.start(wanted, broken)) == 1


def test_one_that_loads_is_waited_for_and_not_started_again() -> None:
    wanted = made()
    state = host(wanted)
    loads = state.model_copy(
        update={"texts": {**state.texts, places.SERVER_PROGRESS: json.dumps({"state": "running"})}}
    )
    assert changes.start(wanted, loads) == ()
    assert not changes.nothing_to_wait_for(wanted, loads)
    (judged,) = [judged for judged in verdict.drift(wanted, loads) if not judged.good]
    assert (judged.key, judged.result) == (READY, "fail")


def test_one_that_does_not_run_is_started_after_it_was_validated() -> None:
    wanted = made()
    state = host(wanted)
    stopped = state.model_copy(update={"units": {**state.units, places.SERVER_UNIT: Unit(active=False)}})
    verify, check = changes.validate(wanted, stopped)
    assert verify == "/usr/bin/python3 -I /usr/local/lib/ktfleet/weights verify /etc/ktfleet/weights.json"
    assert check.endswith("| /usr/bin/python3 -I /usr/local/lib/ktfleet/server check")
    (start,) = changes.start(wanted, stopped)
    assert start.endswith("systemctl restart --no-block ktfleet-server.service")
    assert [judged.key for judged in verdict.drift(wanted, stopped) if not judged.good] == [LAUNCH]


def test_the_job_reaches_the_check_as_it_is() -> None:
    """Quoted for a shell: a model may be called anything."""
    wanted = made(override={"environment": {"X": "it's $HOME `id` \\n %s"}})
    assert wanted.server
    *_, check = changes.validate(wanted, workstation())
    command = check.rpartition("|")[0]
    done = subprocess.run(("sh", "-c", command), capture_output=True, text=True, check=True)
    assert parse_job(done.stdout) == wanted.server


def test_what_is_no_longer_wanted_is_stopped_and_its_key_removed() -> None:
    before = made(server=PUBLIC)
    state = host(before)
    (command,) = changes.stop_unwanted(made(stack=None), state)
    assert command == (
        "systemctl -q disable --now ktfleet-front.service ktfleet-server.service; rm -f /etc/ktfleet/server.key"
    )
    (command,) = changes.stop_unwanted(made(), state)
    assert command == "systemctl -q disable --now ktfleet-front.service; rm -f /etc/ktfleet/server.key"
    assert len([c for c in changes.enable(made(stack=None), state) if c.startswith("rm -f")]) == 4


def test_the_front_s_package_brings_no_service_of_its_own() -> None:
    wanted = made(server=PUBLIC)
    (command,) = changes.install_front(wanted, workstation())
    assert command.index("systemctl -q mask haproxy.service") < command.index("install -y")
    assert changes.install_front(made(), workstation()) == ()


def test_a_front_that_stands_still_fails() -> None:
    wanted = made(server=PUBLIC)
    state = host(wanted)
    still = state.model_copy(update={"units": {**state.units, places.FRONT_UNIT: Unit(active=False)}})
    assert [judged.key for judged in verdict.drift(wanted, still) if not judged.good] == [FRONT]
    assert changes.serve_front(wanted, still)[-1].endswith("systemctl restart ktfleet-front.service")


@pytest.mark.parametrize(("listener", "server", "line"), [
    ({"address": "127.0.0.1", "port": 30000, "pid": 812, "name": "vllm", "unit": "vllm.service"}, {},
     "port 30000 is in use: seen vllm (pid 812, vllm.service) on 127.0.0.1, wanted nobody on 127.0.0.1; stop it, or "
     "set server.port"),
    ({"address": "::", "port": 30000, "pid": 812, "name": "vllm"}, {}, "seen vllm (pid 812) on ::"),
    ({"address": "0.0.0.0", "port": 30000}, {}, "seen somebody on 0.0.0.0"),
    ({"address": "127.0.0.1", "port": 30001, "pid": 1, "name": "x"}, {"server": PUBLIC}, "port 30001 is in use"),
    ({"address": "192.168.1.5", "port": 30000, "pid": 1, "name": "x"}, {"server": PUBLIC}, "port 30000 is in use"),
])  # fmt: skip
def test_a_port_in_use_is_refused_with_its_owner(listener: dict[str, Any], server: dict[str, Any], line: str) -> None:
    state = workstation().model_copy(update={"listeners": (Listener(**listener),)})
    (problem,) = made(state, **server).refusals
    assert line in str(problem)


@pytest.mark.parametrize("listener", [
    {"address": "127.0.0.1", "port": 30000, "unit": "ktfleet-server.service"},
    {"address": "0.0.0.0", "port": 30000, "unit": "ktfleet-front.service"},
    {"address": "127.0.0.2", "port": 30000, "unit": "vllm.service"}, {"address": "127.0.0.1", "port": 30001},
])  # fmt: skip
def test_ours_and_other_places_refuse_nothing(listener: dict[str, Any]) -> None:
    state = workstation().model_copy(update={"listeners": (Listener(**listener),)})
    assert made(state).refusals == ()


def test_a_host_that_serves_nothing_minds_no_port() -> None:
    state = workstation().model_copy(update={"listeners": (Listener(address="127.0.0.1", port=30000),)})
    assert made(state, stack=None).refusals == ()


GOOD = "0123456789abcdef"


@pytest.mark.parametrize(("content", "mode", "line"), [
    (None, 0o600, "seen no such file or directory, wanted a readable file; write the key there"),
    (GOOD, 0o640, "is readable by others: seen mode 0640, wanted 0600; write the key there, then `chmod 600 "),
    (GOOD, 0o604, "seen mode 0604"),
    ("", 0o600, "the API key cannot be used: seen 0 characters, wanted 16 to 512 letters"),
    ("short", 0o600, "seen 5 characters"),
    (f"{GOOD}\n{GOOD}", 0o600, "seen 33 characters"),
    (f"{GOOD} s3cret", 0o600, "the API key cannot be used"),
    ("\udcff" * 20, 0o600, "seen no text"),
])  # fmt: skip
def test_a_bad_key_file_is_one_line_without_the_key(tmp_path: Path, content: str | None, mode: int, line: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        path.chmod(mode)
    (problem,) = made(server=Server(key=Key(file=str(path)))).refusals
    assert line in str(problem)
    assert "s3cret" not in str(problem)
    assert GOOD not in str(problem)


def test_a_good_key_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{GOOD}\n")
    path.chmod(0o600)
    wanted = made(server=Server(host="0.0.0.0", key=Key(file=str(path))))
    assert wanted.refusals == ()
    assert key.read(Key(file=str(path))) == GOOD
    everything = repr(wanted) + json.dumps(wanted.to_json()) + "".join(text(wanted, path) for path in files.paths())
    assert GOOD not in everything


@pytest.mark.parametrize(("command", "line"), [
    (("false",), "the key's command false: seen exit status 1, wanted the key; run it by hand"),
    (("/no/such", "s3cret"), "the key's command /no/such: seen no such file or directory, wanted a program"),
    (("echo", "x"), "the API key cannot be used: seen 1 characters"),
])  # fmt: skip
def test_a_bad_key_command_is_one_line(command: tuple[str, ...], line: str) -> None:
    with pytest.raises(Refused) as caught:
        key.read(Key(command=command))
    assert str(caught.value).startswith(line)
    assert "s3cret" not in str(caught.value)


def test_a_key_command() -> None:
    assert key.read(Key(command=("echo", GOOD))) == GOOD


@pytest.mark.parametrize(("active", "state", "seen"), [
    ("active", "running", "running"), ("active", "done", "done"), ("active", "failed", "failed"),
    ("activating", "failed", "failed"), ("activating", None, "running"), ("failed", "running", "failed"),
    ("failed", None, "failed"),
])  # fmt: skip
def test_a_service_has_said_its_last_word_while_it_goes_on(active: str, state: str | None, seen: str) -> None:
    lines = [f"ActiveState={active}", "Result=oom-kill", "ExecMainStatus=9"]
    lines += (
        [json.dumps({"state": state, "step": "x", "problems": ["y"] if state == "failed" else []})] if state else []
    )
    found = told.parse(places.SERVER_UNIT, lines)
    assert found
    assert found.state == seen


def test_states_of_these_tests_agree_with_the_plan() -> None:
    wanted = made()
    assert changes.reasons(wanted, serving(wanted, host(wanted))) == ()


def test_the_overlay_may_write_where_it_is_told_to() -> None:
    wanted = made(recipe="dsv4-flash-mxfp4-top4")
    assert wanted.server
    status = Path(json.loads(dict(wanted.server.environment)[VARIABLE])["status"])
    unit = text(wanted, places.unit_file(places.SERVER_UNIT)).splitlines()
    # systemd makes it for the unit's user, and lets it write there whatever ProtectSystem= says.
    assert str(status) == places.SERVER_STATUS
    assert f"RuntimeDirectory={status.parent.relative_to('/run')}" in unit
    assert "User=ktfleet" in unit
