"""The locks, really installed: hashes match, what is installed is what is locked, and it works as far as it can."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from ktfleet.config import parse
from ktfleet.judge.stack import judge
from ktfleet.locks import path as lock
from ktfleet.measure import stack
from ktfleet.measure.stack_record import Record
from tests.stack.conftest import uv

pytestmark = pytest.mark.stack

COMPILE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("stack", sys.argv[1])
sys.modules["stack"] = stack = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stack)
import triton
from triton.backends.compiler import GPUTarget
stack.tl = importlib.import_module("triton.language")
kinds = {"source": "*fp32", "target": "*fp32", "count": "i32", "block": "constexpr"}
source = triton.compiler.ASTSource(fn=triton.jit(stack._double), signature=kinds, constexprs={"block": 256})
sys.stdout.write(triton.compile(source, target=GPUTarget("cuda", 120, 32)).asm["ptx"])
"""


@pytest.fixture(scope="session")
def record(stack_python: Path) -> Record:
    """What the proof says of the real environment, without a card."""
    version = subprocess.check_output(
        [stack_python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
    )
    command = [stack_python, "-I", stack.__file__, "--lock", lock(version.strip())]
    return Record.model_validate_json(subprocess.check_output(command, text=True).splitlines()[-1])


def test_the_environment_is_the_lock_and_is_proven(record: Record) -> None:
    """Everything passes where the variant of this CPU is the wanted one."""
    kernel = record.proofs.kt_kernel
    assert kernel is not None
    assert kernel.proven is not None, kernel.said
    print(f"kt_kernel takes {kernel.proven.variant} here")
    here = parse({"gpu": None, "stack": {"cpu_variant": kernel.proven.variant}}, "test")
    verdicts = judge(here, record)
    assert [str(verdict) for verdict in verdicts if not verdict.good] == []
    assert [verdict.key for verdict in verdicts if verdict.result == "skipped"] == ["stack on the card"]


def test_kt_kernel_takes_what_the_cpu_has(record: Record) -> None:
    assert record.proofs.kt_kernel is not None
    assert record.proofs.kt_kernel.proven is not None
    flags = set(re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)[1].split())  # type: ignore[index]
    wide = {"avx512f", "avx512bw"} <= flags
    assert record.proofs.kt_kernel.proven.variant.startswith("avx512_" if wide and "amx_tile" not in flags else
                                                             "amx" if wide else "avx2")  # fmt: skip


def test_another_file_than_the_locked_one_is_refused(tmp_path: Path, room: Path) -> None:
    changed = tmp_path / "lock.txt"
    version = re.search(r"^py-cpuinfo==(\S+)", lock("3.12").read_text(), re.M)
    assert version
    changed.write_text(f"py-cpuinfo=={version[1]} --hash=sha256:{'0' * 64}\n")
    done = uv("pip", "install", "--target", tmp_path / "there", "--require-hashes", "-r", changed, cache=room / "cache")
    assert done.returncode != 0
    assert "Hash mismatch" in done.stderr
    assert not list((tmp_path / "there").glob("cpuinfo*"))


def test_the_packages_for_python_3_12_are_as_locked(target_312: Path) -> None:
    """What the program reads of an environment, of a folder that this Python cannot run."""
    done = {path.name for path in target_312.glob("*.dist-info")}
    names = {stack.normal(name.partition("-")[0]): name.split("-")[1].removesuffix(".dist") for name in done}
    assert names == stack.read_lock(lock("3.12"))
    variants = {path.name.split(".")[0] for path in (target_312 / "kt_kernel").glob("*.cpython-312-*.so")}
    assert {"_kt_kernel_ext_avx2", "_kt_kernel_ext_avx512_base"} <= variants


def test_the_kernel_of_the_triton_proof_compiles_for_the_card(stack_python: Path, tmp_path: Path) -> None:
    """Whether it runs, only a card can show."""
    surroundings = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    command = [stack_python, "-c", COMPILE, stack.__file__]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
    assert done.returncode == 0, done.stderr
    assert ".target sm_120" in done.stdout
