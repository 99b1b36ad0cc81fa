"""Weights the whole way, in order: fetched, cut, resumed, converted; then a new system beside the old data disk."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import hub as hubs
from tests.lab.deploying import NO_REBOOT, PYINFRA, ROOT, environment, pyinfra
from tests.lab.machine import Machine
from tests.weights import write_checkpoint

pytestmark = [pytest.mark.lab, pytest.mark.long]

BIG = "model-00002-of-00002.safetensors"
HELD = 3_000_000
FOLDER = f"/srv/models/small-model/{hubs.REVISION}"
SHARDS = f"{FOLDER}-AMXINT4-p2"
PLACE = "kt-kernel/scripts/convert_cpu_weights_ds4.py"
STAND_IN = ROOT / "tests/converter.py"
STACK = "mkdir -p /opt/ktfleet/stack/bin && ln -sfn /usr/bin/python3 /opt/ktfleet/stack/bin/python"
PORT = 18080
AVX512 = (
    "sed 's/ avx2 / avx2 avx512f avx512bw /' /proc/cpuinfo > /run/cpuinfo && mount --bind /run/cpuinfo /proc/cpuinfo"
)
"""What the emulator lacks, and AMXINT4's kernel asks for. Nothing here runs it."""

VERIFY = "sudo -u ktfleet python3 -I /usr/local/lib/ktfleet/weights verify --deep /etc/ktfleet/weights.json"
FILL = (
    "fallocate -l $(df -B1 --output=avail /srv/models | tail -1) /srv/models/fill"  # all that others than root may use
)
LIMIT_S = 300
A_LAYER_S = 20  # of the conversion: time to do something to it


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hubs.Hub]:
    folder = write_checkpoint(tmp_path_factory.mktemp("hub"), rows=600_000)
    sizes = {"layers": 2, "experts": 8, "hidden_size": 512, "moe_intermediate_size": 256}
    (folder / "config.json").write_text(json.dumps({**sizes, "stand_in": "slow", "seconds": A_LAYER_S}))
    with hubs.running(hubs.Hub(folder, hold={BIG: HELD})) as made:
        yield made
        made.go.set()


@dataclass(frozen=True)
class Upstream:
    """A bare repository on the controller, and its commit."""

    folder: Path
    commit: str


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The stand-in for the converter, as upstream keeps it."""
    folder = tmp_path_factory.mktemp("git")
    work = folder / "work"
    (work / PLACE).parent.mkdir(parents=True)
    (work / PLACE).write_bytes(STAND_IN.read_bytes())
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run(("git", "-C", str(work), *identity, *arguments), check=True)
    subprocess.run(("git", "clone", "-q", "--bare", str(work), str(folder / "upstream.git")), check=True)
    done = subprocess.run(("git", "-C", str(work), "rev-parse", "HEAD"), capture_output=True, text=True, check=True)
    return Upstream(folder / "upstream.git", done.stdout.strip())


@pytest.fixture(scope="module")
def settings(upstream: Upstream) -> tuple[str, ...]:
    """The arguments of every run."""
    converter = {
        "repository": "file:///srv/upstream.git",
        "commit": upstream.commit,
        "sha256": hashlib.sha256(STAND_IN.read_bytes()).hexdigest(),
    }
    weights = {"source": {"kind": "hub", "endpoint": f"http://127.0.0.1:{PORT}"}, "converter": converter}
    data = {"label": "models", "mount": "/srv/models"}
    recipe = ("--data", "recipe=tests/lab/weights.toml")
    return (*NO_REBOOT, *recipe, "--data", f"data={json.dumps(data)}", "--data", f"weights={json.dumps(weights)}")


def prepare(machine: Machine, upstream: Upstream) -> None:
    """What a machine has besides: an interpreter where the stack will be, and a way to the repository."""
    machine.run(f"{AVX512}; {STACK}; mkdir -p /srv/upstream.git", sudo=True)
    packed = subprocess.run(("tar", "-C", str(upstream.folder), "-c", "."), capture_output=True, check=True).stdout
    unpack = (
        f"sudo sh -c {shlex.quote('tar -C /srv/upstream.git --no-same-owner -x && chown -R 790:790 /srv/upstream.git')}"
    )
    subprocess.run(machine.ssh_command(unpack), input=packed, check=True)


@contextmanager
def tunnel(machine: Machine, hub: hubs.Hub) -> Iterator[None]:
    """The machine's way to the hub: it has no network."""
    ssh, *rest = machine.ssh_command()
    port = hub.url.rpartition(":")[2]
    command = [ssh, "-N", "-R", f"{PORT}:127.0.0.1:{port}", *rest]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(LIMIT_S):
        if true():
            return
        time.sleep(1)
    raise AssertionError(f"not true after {LIMIT_S} s")


def asked(hub: hubs.Hub, name: str) -> list[str | None]:
    """The ranges that were asked for."""
    return [range_ for path, range_, _ in hub.requests if path == f"/cdn/{name}"]


@contextmanager
def running(machine: Machine, settings: tuple[str, ...], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A deploy that is still at work; afterwards it is gone."""
    command = [str(PYINFRA), "-y", "inventory/lab.py", "tests/lab/only_weights.py", *settings]
    with log.open("wb") as said:
        run = subprocess.Popen(command, cwd=ROOT, env=environment(machine), stdout=said, stderr=said)
    try:
        yield run
    finally:
        run.kill()
        run.wait()


def reboot(machine: Machine) -> None:
    machine.reboot()
    machine.run(AVX512, sudo=True)
    # nofail: ssh may answer before the disk is mounted.
    wait_until(lambda: machine.run("findmnt -no LABEL /srv/models", check=False).stdout.strip() == "models")


def there(machine: Machine, path: str) -> bool:
    return machine.run(f"ls {path}", check=False).returncode == 0


def converting(machine: Machine, run: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the first layer is written."""
    wait_until(lambda: there(machine, f"{SHARDS}.partial/model-00001-*") or run.poll() is not None)
    assert run.poll() is None, log.read_text()


def test_a_dropped_connection_kills_nothing_and_a_reboot_only_stops_it(
    machine: Machine, hub: hubs.Hub, upstream: Upstream, settings: tuple[str, ...], tmp_path: Path
) -> None:
    prepare(machine, upstream)
    log = tmp_path / "log"
    with tunnel(machine, hub):
        with running(machine, settings, log) as run:
            wait_until(lambda: hub.sent >= HELD or run.poll() is not None)
            assert run.poll() is None, log.read_text()
        assert machine.run("systemctl is-active ktfleet-download").stdout.strip() == "active"
        assert machine.run("findmnt -no LABEL /srv/models").stdout.strip() == "models"
        assert machine.run("stat -c %u /srv/models").stdout.strip() == "790"
        reboot(machine)
    hub.go.set()
    assert not there(machine, FOLDER), "not complete"


def test_the_next_run_goes_on_and_a_reboot_in_the_conversion_only_stops_it(
    machine: Machine, hub: hubs.Hub, settings: tuple[str, ...], tmp_path: Path
) -> None:
    hub.requests.clear()
    with tunnel(machine, hub), running(machine, settings, tmp_path / "log") as run:
        converting(machine, run, tmp_path / "log")
        reboot(machine)
    assert BIG in hub.files
    assert "config.json" not in hub.files, "what was complete is not fetched again"
    (resumed,) = asked(hub, BIG)
    assert resumed
    assert resumed.startswith("bytes=")
    assert there(machine, FOLDER), "complete"
    assert not there(machine, SHARDS)


def test_a_disk_that_fills_up_in_the_conversion_is_one_line(
    machine: Machine, settings: tuple[str, ...], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with running(machine, settings, log) as run:
        converting(machine, run, log)
        machine.run(FILL, sudo=True)
        code = run.wait(LIMIT_S)
    machine.run("rm /srv/models/fill", sudo=True)
    said = log.read_text()
    assert code != 0, said
    # The converter meets it, or the program itself when it writes its record.
    (line,) = re.findall(r"\[lab\] (.*: seen no space left on .*)", said)
    assert "; free some" in line
    assert not there(machine, SHARDS)


def test_the_next_run_converts(machine: Machine, hub: hubs.Hub, settings: tuple[str, ...]) -> None:
    hub.requests.clear()
    run = pyinfra(machine, "deploy.py", *settings)
    assert run.proven, run.said
    assert hub.requests == [], "what was complete is not fetched again"
    machine.run(VERIFY)
    about = json.loads(machine.run(f"cat {SHARDS}/.ktfleet.json").stdout)
    assert about["pools"] == 2
    assert all("sha256" in held for held in about["files"].values())


def test_the_run_after_it_changes_nothing(machine: Machine, hub: hubs.Hub, settings: tuple[str, ...]) -> None:
    run = pyinfra(machine, "deploy.py", *settings)
    assert (run.proven, run.changed) == (True, 0), run.said


def test_a_new_system_uses_the_old_data_disk(machine: Machine, hub: hubs.Hub, settings: tuple[str, ...]) -> None:
    machine.run("umount /srv/models", sudo=True)
    machine.stop()
    machine.start()  # from the image: nothing of the old root is left
    assert machine.run("id ktfleet", check=False).returncode != 0
    machine.run(AVX512, sudo=True)
    hub.requests.clear()
    run = pyinfra(machine, "tests/lab/only_weights.py", *settings)
    assert run.code == 0, run.said
    assert hub.requests == [], "zero bytes fetched"
    machine.run(VERIFY)
