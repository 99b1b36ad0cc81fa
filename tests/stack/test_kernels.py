"""kt-kernel's expert kernels on small synthetic experts, on this CPU, beside torch (or numpy where there is none)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.stack

PROGRAM = Path(__file__).with_name("expert_kernel.py")
FROM_BF16 = 0.35
"""Relative L1 that 4 bits with one scale a row cost on random weights; MXFP4 has a scale for 32 and costs less."""
FROM_QUANTISED = 0.005
"""Relative L1 beside a reference that rounds as the kernel does: only the order of sums differs. Seen: 0.0005."""
KERNELS = [("avx2", "AVX2MXFP4_MOE"), ("avx512_base", "AMXInt4_MOE"), ("avx512_base", "AMXFP4_KGroup_MOE"),
           ("avx512_base", "AVX2MXFP4_MOE")]  # fmt: skip


def measure(python: Path, folder: Path, **variables: str) -> dict[str, Any]:
    """What the program says of all kernels that this CPU can run."""
    done = subprocess.run([python, PROGRAM, folder], capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found))
    return found


@pytest.fixture(scope="session")
def measured(stack_python: Path) -> dict[str, Any]:
    site = subprocess.check_output(
        [stack_python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"], text=True
    )
    return measure(stack_python, Path(site.strip()))


def judged(measured: dict[str, Any], variant: str, kernel: str) -> None:
    """Fail unless that kernel was close to both references with each number of tokens."""
    if variant in measured["lacking"]:
        pytest.skip(f"this CPU ({measured['cpu']}) lacks {', '.join(measured['lacking'][variant])} for {variant}")
    (found,) = (each for each in measured["results"] if (each["variant"], each["kernel"]) == (variant, kernel))
    assert "exit" not in found, found
    assert [run["tokens"] for run in found["runs"]] == [1, 64]
    for run in found["runs"]:
        assert run["finite"], found
        assert run["from_bf16"] <= FROM_BF16, found
        assert run["from_quantised"] <= FROM_QUANTISED, found


@pytest.mark.parametrize(("variant", "kernel"), KERNELS)
def test_a_kernel_computes_what_its_format_allows(measured: dict[str, Any], variant: str, kernel: str) -> None:
    """The extension is loaded by its name and says which one it is: `import kt_kernel` could take another."""
    judged(measured, variant, kernel)
    assert measured["results"][0]["reference"] == "torch"


def test_the_kernels_for_python_3_12_compute_the_same(target_312: Path) -> None:
    python = shutil.which("python3.12")
    if python is None or subprocess.run([python, "-V"], capture_output=True).returncode:
        pytest.skip("no python3.12 on PATH to load the extensions for it")
    measured = measure(Path(python), target_312, PYTHONPATH=str(target_312))
    judged(measured, "avx2", "AVX2MXFP4_MOE")
