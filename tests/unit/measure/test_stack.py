"""The proof of an environment as it runs on a host: by that environment's own Python, with packages that misbehave."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.config import parse
from ktfleet.judge.stack import judge
from ktfleet.measure import stack, stack_record
from ktfleet.measure.stack_record import Proofs, Record
from ktfleet.pyinfra_api.stack import LIMIT_S
from tests.environments import Environment

SOURCE = Path(stack.__file__)
GOOD = "import os\n__cpu_variant__ = os.environ.get('KT_KERNEL_CPU_VARIANT', 'avx512_base')\n"
CONFIG = parse({"gpu": None}, "test")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


def run(environment: Environment, *names: str, options: tuple[str, ...] = ()) -> Record:
    """What the program says of it, with a lock of these packages."""
    command = [environment.python, "-I", SOURCE, "--lock", environment.lock(*names), *options]
    surroundings = {**os.environ, "KT_KERNEL_CPU_VARIANT": "amx", "CUDA_HOME": "/usr/local/cuda-12.9"}
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=True)
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    return Record.model_validate_json(line)


def kt_kernel(environment: Environment, text: str) -> Any:
    """How the proof of such a kt-kernel ends."""
    environment.install("kt-kernel", {"kt_kernel/__init__.py": text})
    outcome = run(environment, "kt-kernel").proofs.kt_kernel
    assert outcome is not None
    return outcome


def bad(record: Record) -> dict[str, str]:
    return {verdict.key: verdict.result for verdict in judge(CONFIG, record) if not verdict.good}


def test_a_small_environment_that_is_as_locked_is_proven_whole(environment: Environment) -> None:
    environment.install("kt-kernel", {"kt_kernel/__init__.py": GOOD})
    environment.install("Other.Package", {"other.py": ""})
    record = run(environment, "kt-kernel", "other-package")
    assert record.locked == {"kt-kernel": "1.0", "other-package": "1.0"}
    assert record.installed == {"kt-kernel": ("1.0",), "other-package": ("1.0",)}
    assert record.prefix == str(environment.folder)
    assert record.proofs.kt_kernel is not None
    assert record.proofs.kt_kernel.values is not None
    assert record.proofs.kt_kernel.values.variant == "avx512_base", "an inherited variable chooses nothing"
    assert record.proofs.payload is None, "not in the lock"
    assert bad(record) == {}


def test_an_illegal_instruction_ends_its_own_proof_only(environment: Environment) -> None:
    environment.install("apache-tvm-ffi", {"tvm_ffi.py": "__version__ = '1'"})
    environment.install("tilelang", {"tilelang.py": "__version__ = '2'"})
    environment.install("kt-kernel", {"kt_kernel.py": "import os, signal; os.kill(os.getpid(), signal.SIGILL)"})
    record = run(environment, "kt-kernel", "apache-tvm-ffi", "tilelang")
    assert record.proofs.kt_kernel is not None
    assert (record.proofs.kt_kernel.signal, record.proofs.kt_kernel.exit) == ("SIGILL", None)
    assert record.proofs.tilelang is not None
    assert record.proofs.tilelang.proven == stack_record.Pair(tvm_ffi="1", tilelang="2")
    assert bad(record) == {"kt_kernel variant": "fail"}


def test_an_abort_keeps_its_last_words(environment: Environment) -> None:
    text = "TypeAttr `__ffi_repr__` is already registered for type index 130."
    environment.install("apache-tvm-ffi", {"tvm_ffi.py": "__version__ = '1'"})
    environment.install("tilelang", {"tilelang.py": f"import os; os.write(2, b'{text}\\n'); os.abort()"})
    record = run(environment, "apache-tvm-ffi", "tilelang")
    assert record.proofs.tilelang is not None
    assert record.proofs.tilelang.signal == "SIGABRT"
    (verdict,) = (each for each in judge(CONFIG, record) if not each.good)
    assert "exactly the lock" in verdict.do


def test_an_error_keeps_its_last_lines(environment: Environment) -> None:
    outcome = kt_kernel(environment, "print('x' * 100000)\nraise TypeError('nobody knows')\n")
    assert (outcome.exit, outcome.signal, outcome.values) == (1, None, None)
    assert outcome.said.endswith("TypeError: nobody knows")
    assert len(outcome.said) <= stack.SAID_BYTES


def test_a_process_that_dies_after_its_answer_proves_nothing(environment: Environment) -> None:
    outcome = kt_kernel(environment, GOOD + "import atexit, os; atexit.register(os.abort)\n")
    assert outcome.values is not None
    assert outcome.signal == "SIGABRT"
    assert outcome.proven is None


def test_what_hangs_is_ended_with_its_children(environment: Environment, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "child.wait()\n"
    )
    environment.install("kt-kernel", {"kt_kernel.py": text})
    program = (
        "import importlib.util, json, sys\n"
        f"spec = importlib.util.spec_from_file_location('stack', {str(SOURCE)!r})\n"
        "stack = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(stack)\n"
        "print(json.dumps(stack.attempt('kt_kernel', 5)))\n"
    )
    done = subprocess.run([environment.python, "-I", "-c", program], capture_output=True, text=True, check=True)
    outcome = json.loads(done.stdout)
    assert (outcome["exit"], outcome["signal"], outcome["values"]) == (None, None, None)
    state = Path("/proc", pid.read_text(), "stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_objects_of_sgl_kernel_are_joined_without_a_card(environment: Environment, tmp_path: Path) -> None:
    """Its own __init__ needs the driver's library; its own code that joins them does not."""
    joined = tmp_path / "joined"
    joined.mkdir()
    environment.install("kt-kernel", {
        "kt_kernel/__init__.py": GOOD,
        "sgl_kernel/__init__.py": "raise ImportError('libcuda.so.1: cannot open shared object file')",
        "sgl_kernel/_payload_manifest.py": "VERSION, BINARIES = '7', {'a.so': 'x/a.so', 'b.so': 'x/b.so'}",
        "sgl_kernel/payload_runtime.py": (
            "from pathlib import Path\n"
            "from sgl_kernel import _payload_manifest\n"
            "def materialize_binary(name):\n"
            f"    path = Path({str(joined)!r}, name)\n"
            "    path.write_text(_payload_manifest.BINARIES[name])\n"
            "    return path\n"
        ),
    })  # fmt: skip
    others = [name for name in stack.PAYLOADS if name != "kt-kernel"]
    for name in others:
        environment.install(name, {})
    environment.install("torch", {"torch.py": ""})
    outcome = run(environment, *stack.PAYLOADS, "torch", options=("--gpu",)).proofs
    assert outcome.payload is not None
    assert outcome.payload.proven is not None
    assert outcome.payload.proven.sizes == {"a.so": 6, "b.so": 6}
    assert outcome.payload.proven.folder == joined
    assert outcome.sgl_kernel is not None
    assert outcome.sgl_kernel.exit == 1
    assert "libcuda.so.1" in outcome.sgl_kernel.said


def test_what_needs_a_card_is_proven_only_where_one_is_asked_for(environment: Environment) -> None:
    environment.install("torch", {"torch.py": "raise RuntimeError('Found no NVIDIA driver on your system')"})
    environment.install("triton", {"triton.py": ""})
    without, asked = run(environment, "torch", "triton"), run(environment, "torch", "triton", options=("--gpu",))
    assert without.proofs == Proofs()
    assert asked.gpu
    assert asked.proofs.torch is not None
    assert "Found no NVIDIA driver" in asked.proofs.torch.said
    assert asked.proofs.triton is not None


def test_the_first_kernel_is_built_with_as_many_compilers_as_fit(environment: Environment, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    module = (
        "import json, os\n"
        "def _jit_fp8_blockwise_module():\n"
        f"    open({str(seen)!r}, 'w').write(json.dumps(dict(os.environ)))\n"
    )
    jit = {
        "sglang/__init__.py": "",
        "sglang/jit_kernel/__init__.py": "",
        "sglang/jit_kernel/fp8_blockwise_gemm.py": module,
    }
    environment.install("sglang-kt", jit)
    names = ("sglang-kt", "flashinfer-python", "apache-tvm-ffi", "torch")
    for name in names[1:]:
        environment.install(name, {})
    outcome = run(environment, *names, options=("--gpu",)).proofs.fp8_gemm
    assert outcome is not None
    assert outcome.proven is not None
    variables = json.loads(seen.read_text())
    assert variables["MAX_JOBS"] == str(outcome.proven.jobs)
    assert variables["PATH"].startswith(f"{environment.folder}/bin:/usr/local/cuda-12.9/bin:")
    assert "KT_KERNEL_CPU_VARIANT" not in variables


@given(st.integers(1, 256), st.integers(0, 4096))
def test_compilers_leave_memory_and_there_is_always_one(cpus: int, gib: int) -> None:
    jobs = stack.max_jobs(cpus, gib)
    assert 1 <= jobs <= cpus
    assert jobs == 1 or jobs * 8 + 16 <= gib


def test_an_interrupted_upgrade_and_broken_files_are_seen(environment: Environment) -> None:
    environment.install("one", {"one.py": "1"})
    (environment.install("one", {"one.py": "22"}, "2.0") / "RECORD").write_text("one.py,,2\n")
    environment.install("cut", {"cut.py": "x = 1"})
    (environment.site / "cut.py").write_text("x")
    environment.install("gone", {"gone.py": ""})
    (environment.site / "gone.py").unlink()
    (environment.install("bare", {}) / "RECORD").unlink()
    (environment.install("nameless", {}) / "METADATA").write_text("")
    record = run(environment, "one", "cut", "gone")
    assert record.installed["one"] == ("1.0", "2.0")
    assert "cut.py: 1 bytes, not 5" in record.damaged["cut"]
    assert "no such file" in record.damaged["gone"]
    assert record.damaged["bare"] == "it has no RECORD"
    assert any("nameless" in name for name in record.damaged)
    assert "one" not in record.damaged, "two distributions own that file, and it is one of theirs"
    assert bad(record) == {"stack packages": "fail", "stack files": "fail"}


@pytest.mark.parametrize("options", [(), ("--proof", "kt_kernel"), ("--proof", "nothing", "--into", "x")])
def test_wrong_arguments_are_usage(options: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-I", SOURCE, *options], capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_it_needs_nothing_but_python() -> None:
    nodes = list(ast.walk(ast.parse(SOURCE.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_program_and_types_know_the_same_proofs() -> None:
    assert set(stack.PROOFS) == set(Proofs.model_fields)
    assert stack.SCHEMA == stack_record.SCHEMA


def test_all_proofs_end_within_the_time_that_a_run_waits() -> None:
    assert sum(limit for _, _, limit, _ in stack.PROOFS.values()) < LIMIT_S
