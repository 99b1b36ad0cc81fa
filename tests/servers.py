"""Wheels whose `python -m sglang.launch_server` is another server: the lab's engine, or llama.cpp's."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests import wheels

ROOT = Path(__file__).parents[1]
COMMON = {"sglang/flags.py": "tests/lab/flags.py", "sglang/flags.json": "ktfleet/plan/sglang_kt_flags.json"}
ENGINE = {
    **COMMON,
    "sglang/engine.py": "tests/engine.py",
    "sglang/expert_layer.py": "ktfleet/measure/expert_layer.py",
    "sglang/launch_server.py": "tests/lab/engine.py",
}
LLAMA = {**COMMON, "sglang/model.py": "tests/peer/model.py", "sglang/launch_server.py": "tests/lab/llama.py"}
OF_KT_KERNEL = ("kt_kernel/_cpu_detect.py", "kt_kernel/_kt_kernel_ext_avx2.", "kt_kernel.libs/")
"""Of its wheel: the emulated CPU stops at AVX2, and the other 180 MB are for a card."""
LIBGOMP = "kt_kernel.libs/libgomp-"


def write_engine(folder: Path, kt_kernel: Path | None = None) -> Path:
    """The engine's. kt_kernel: the wheel; without it the engine reads its command line, and no more."""
    parts = _parts(kt_kernel, *OF_KT_KERNEL) if kt_kernel else {}
    return wheels.write_wheel(folder, "lab_engine", more={**_modules(ENGINE), **parts})


def write_llama(folder: Path, kt_kernel: Path) -> Path:
    """llama.cpp's, which comes from a wheel of its own. It needs an OpenMP, and kt-kernel's wheel has one."""
    (openmp,) = _parts(kt_kernel, LIBGOMP).values()
    return wheels.write_wheel(folder, "lab_llama", more={**_modules(LLAMA), "sglang/libgomp.so.1": openmp})


def _modules(sources: Mapping[str, str]) -> dict[str, str | bytes]:
    """Path -> text of what is written here."""
    return {"sglang/__init__.py": "", **{place: (ROOT / source).read_text() for place, source in sources.items()}}


def _parts(wheel: Path, *beginnings: str) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith(beginnings)}
