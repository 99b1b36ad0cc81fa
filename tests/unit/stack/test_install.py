"""Environments really built by uv: from wheels that the tests make, over loopback, below a temporary folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uv

from ktfleet.host import bundle
from ktfleet.progress import Progress
from ktfleet.stack import install as installing
from ktfleet.stack.install import Failed, install, is_complete
from ktfleet.stack.job import Job
from tests import wheels

UV = uv.find_uv_bin()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is down is asked once."""
    run = installing._run
    monkeypatch.setattr(installing, "_run", lambda command, found: run(command, {**found, "UV_HTTP_RETRIES": "0"}))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[wheels.Index]:
    wheels.write_wheel(tmp_path / "wheels", "alpha", code="VALUE = 1\n")
    wheels.write_wheel(tmp_path / "wheels", "beta", code="import alpha\n")
    with wheels.serving(tmp_path / "wheels") as serving:
        yield serving


def job(root: Path, name: str, text: str, **more: str | None) -> Job:
    lock = root / f"{name}.txt"
    lock.write_text(text)
    made = Job(
        folder=f"{root}/stacks/{name}",
        current=f"{root}/stack",
        lock=str(lock),
        lock_sha256=hashlib.sha256(text.encode()).hexdigest(),
        uv=UV,
        cache=f"{root}/cache",
        pythons=f"{root}/pythons",
        python=os.path.realpath(sys.executable),
        index=None,
        wheels=None,
        python_mirror=None,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def both(index: wheels.Index) -> str:
    return wheels.lock(*sorted(index.folder.glob("*.whl")))


def value(made: Job) -> str:
    """What the environment's own Python finds."""
    command = (f"{made.folder}/bin/python", "-I", "-c", "import beta; print(beta.alpha.VALUE)")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def failure(made: Job) -> str:
    with pytest.raises(Failed) as caught:
        install(made, Progress(None))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_it_is_built_from_an_index_and_the_second_time_is_free(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), index=index.url)
    install(made, Progress(None))
    assert is_complete(made)
    assert value(made) == "1"
    assert Path(f"{made.folder}/lock.txt").read_text() == both(index)
    assert list(Path(made.folder).glob("lib/*/site-packages/__pycache__/alpha*.pyc")), "the user cannot compile it"
    assert not Path(made.cache).exists()
    asked = len(index.requests)
    install(replace(made, uv="/nonexistent"), Progress(None))
    assert len(index.requests) == asked


def test_a_folder_of_wheels_needs_no_index(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), wheels=str(index.folder))
    install(made, Progress(None))
    assert value(made) == "1"
    assert index.requests == []


def test_the_host_s_own_settings_have_no_say(
    tmp_path: Path, index: wheels.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_REQUIRE_HASHES", "0")
    made = job(tmp_path, "one", both(index), index=index.url)
    install(made, Progress(None))
    assert value(made) == "1"


def test_a_wheel_with_another_hash_is_one_line_and_leaves_nothing(tmp_path: Path, index: wheels.Index) -> None:
    text = both(index)
    wheels.write_wheel(index.folder, "beta", code="print('somebody else was here')\n")
    made = job(tmp_path, "one", text, index=index.url)
    line = failure(made)
    assert line.startswith("a package is not the one that the lock names: seen 'cause: Hash mismatch for `beta==1.0`'")
    assert not Path(made.folder).exists()


def test_an_index_that_is_down_keeps_what_was_fetched(tmp_path: Path, index: wheels.Index) -> None:
    text = both(index)
    (beta,) = index.folder.glob("beta*")
    hidden = beta.rename(tmp_path / "hidden")
    made = job(tmp_path, "one", text, index=index.url)
    assert failure(made).startswith("a package of the lock cannot be had for this machine: seen 'cause: Because beta")
    assert Path(made.cache).exists()
    hidden.rename(beta)
    install(made, Progress(None))
    assert value(made) == "1"
    down = replace(job(tmp_path, "two", text, index="http://127.0.0.1:9/simple"))
    line = failure(down)
    assert line.startswith("the host cannot fetch packages: seen ")
    assert "http://127.0.0.1:9/simple/" in line


@pytest.mark.parametrize(("text", "starts"), [
    ("alpha==1.0\n", "the lock has packages without hashes: seen 'error: In `--require-hashes` mode"),
    ("alpha==1.0 --hash=nonsense\n", "uv failed while installing the packages: seen error: "),
])  # fmt: skip
def test_a_lock_that_is_none(tmp_path: Path, index: wheels.Index, text: str, starts: str) -> None:
    assert failure(job(tmp_path, "one", text, index=index.url)).startswith(starts)


def test_a_wheel_for_another_python(tmp_path: Path) -> None:
    wheel = wheels.write_wheel(tmp_path / "wheels", "gamma", tag="cp399-cp399-any")
    line = failure(job(tmp_path, "one", wheels.lock(wheel), wheels=str(wheel.parent)))
    assert line.startswith(
        "a package of the lock cannot be had for this machine: seen 'cause: Because gamma==1.0 has no"
    )


def test_a_lock_that_was_not_uploaded_whole(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), index=index.url)
    Path(made.lock).write_text(both(index)[:50])
    assert failure(made).startswith(f"{made.lock} is not the wanted lock: seen sha256 ")


def test_a_python_that_is_gone_and_a_uv_that_does_not_start(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), index=index.url)
    assert failure(replace(made, python="/usr/bin/python3.99")).startswith("there is no such Python on the host: seen")
    (tmp_path / "uv").write_text("no program")
    (tmp_path / "uv").chmod(0o755)
    assert failure(replace(made, uv=str(tmp_path / "uv"))).startswith("uv cannot be started: seen exec format error")


def test_a_python_of_uv_s_comes_from_the_mirror_or_says_that_it_is_down(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), index=index.url)
    mirror = index.url.removesuffix("/simple") + "/mirror"
    line = failure(replace(made, python="3.12", python_mirror=mirror))
    assert line.startswith("the host cannot fetch packages: seen ")
    assert any(path.startswith("/mirror/") and "cpython-3.12." in path for path in index.requests)


def test_what_was_stopped_in_the_middle_is_built_again(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), index=index.url)
    install(made, Progress(None))
    Path(made.complete).unlink()
    shutil.rmtree(next(Path(made.folder).glob("lib/*/site-packages")) / "alpha-1.0.dist-info")
    left = Path(f"{made.folder}/left")
    left.touch()
    install(made, Progress(None))
    assert is_complete(made)
    assert not left.exists()
    assert value(made) == "1"


def test_the_one_in_use_stays_and_older_ones_go(tmp_path: Path, index: wheels.Index) -> None:
    old, current, new = (job(tmp_path, name, both(index), index=index.url) for name in ("old", "current", "new"))
    install(old, Progress(None))
    Path(old.current).symlink_to(old.folder)
    install(current, Progress(None))
    assert is_complete(old), "still in use"
    Path(old.current).unlink()
    Path(old.current).symlink_to(current.folder)
    failure(replace(new, index="http://127.0.0.1:9/simple"))
    install(new, Progress(None))
    assert [is_complete(made) for made in (old, current, new)] == [False, True, True]
    install(current, Progress(None))
    assert is_complete(new), "going back removes nothing"


def test_an_environment_that_a_process_runs_in_stays(tmp_path: Path, index: wheels.Index) -> None:
    left, new = (job(tmp_path, name, both(index), index=index.url) for name in ("left", "new"))
    inside = Path(left.folder) / "library"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"x" * 4096)
    hold = f"f = open({str(inside)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0)"
    code = f"import mmap; {hold}; print('mapped', flush=True); input()"
    with subprocess.Popen((sys.executable, "-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"mapped\n"
        install(new, Progress(None))
        assert inside.exists()
        server.communicate(b"\n")
    Path(new.complete).unlink()
    install(new, Progress(None))
    assert not inside.exists()


def test_a_full_disk_is_not_filled_up_with_what_was_fetched(
    tmp_path: Path, index: wheels.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = both(index) + wheels.lock(wheels.write_wheel(tmp_path / "elsewhere", "gamma"))
    made = job(tmp_path, "one", text, index=index.url)
    failure(made)
    assert Path(made.cache).exists()
    monkeypatch.setattr(installing, "FULL", 2**62)
    failure(made)
    assert not Path(made.cache).exists()


def test_the_program_runs_alone_and_tells_how_it_ended(tmp_path: Path, index: wheels.Index) -> None:
    made = job(tmp_path, "one", both(index), index=index.url)
    (tmp_path / "job.json").write_text(made.to_json())

    def run() -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
        command = (sys.executable, "-I", "-S", "-c", bundle.source(bundle.STACK), str(tmp_path / "job.json"))
        environment = {"PATH": os.environ["PATH"], "RUNTIME_DIRECTORY": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return done, json.loads((tmp_path / "progress.json").read_text())

    done, told = run()
    assert (done.returncode, told["state"], told["problems"]) == (0, "done", []), done.stderr
    assert told["step"] == "installing the packages"
    Path(made.complete).unlink()
    Path(made.lock).write_text("")
    done, told = run()
    assert (done.returncode, told["state"]) == (1, "failed")
    assert told["problems"] == [done.stderr.strip()]
    (tmp_path / "job.json").write_text("{}")
    command = (sys.executable, "-I", "-S", "-c", bundle.source(bundle.STACK), str(tmp_path / "job.json"))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "cannot be read: seen " in refused.stderr
