"""Measure an environment of the server: what is installed, and whether it works here. Prints one line of JSON: the
keys of `stack_record.Record`.

Runs on the host by itself, with the environment's own Python and as the service's user:
`PYTHON -I stack.py --lock FILE [--gpu]`. It needs Python 3.10 or later and the standard library, and decides nothing.
Which proofs are made follows from the packages in the lock. Each is made by a process of its own with a time limit,
because a wrong package ends its process (a signal) or hangs it: that is told, and the next proof is made all the same.
Nothing inherited reaches them: one variable of kt-kernel's is enough to load another kernel than the server will.
With --gpu what needs the card is proven, too, and the kernel that the server would compile first is compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    Values = dict[str, Any]
    tl: Any = None

SCHEMA = 1
SAID_BYTES, SAID_LINES = 4000, 30
"""Of the end of what a proof printed: as much is kept."""
LOCKED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.M)
"""A requirement at the beginning of a line of a hashed requirements file."""
OVERLAY, OVERLAY_FOLDER = "KTFLEET_OVERLAY", "KTFLEET_OVERLAY_FOLDER"
"""What the server's overlay is asked for, and where it lies, if there is one to prove."""
KEPT = ("HOME", "TMPDIR", "CUDA_HOME", OVERLAY, OVERLAY_FOLDER)
"""Variables that a proof gets from this process, if they are set."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# --- what is installed


def normal(name: str) -> str:
    """A distribution's name as packaging compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> dict[str, str]:
    """Name -> version."""
    return {normal(name): version for name, version in LOCKED.findall(path.read_text(encoding="utf-8"))}


def read_installed() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Name -> versions (two: an interrupted upgrade), and what is wrong with a distribution, by name."""
    versions: dict[str, list[str]] = {}
    damaged: dict[str, str] = {}
    sizes: dict[Path, set[int]] = {}
    owners: dict[Path, str] = {}
    for each in distributions():
        name, version = each.metadata["Name"], each.metadata["Version"]
        if not name or not version:
            damaged[str(getattr(each, "_path", each))] = "its METADATA names no name or no version"
            continue
        versions.setdefault(normal(name), []).append(version)
        record = each.read_text("RECORD")
        if record is None:
            damaged[normal(name)] = "it has no RECORD"
        for path, size in read_record(record or "", Path(str(each.locate_file("")))):
            sizes.setdefault(path, set()).add(size)
            owners[path] = normal(name)
    for path, allowed in sizes.items():
        wrong = wrong_file(path, allowed)
        if wrong:
            damaged.setdefault(owners[path], wrong)
    return {name: sorted(each) for name, each in sorted(versions.items())}, damaged


def read_record(text: str, root: Path) -> Iterator[tuple[Path, int]]:
    """Each file of a distribution that has a size in its RECORD. `root`: what the paths are relative to."""
    for row in csv.reader(text.splitlines()):
        if len(row) == 3 and row[2].isdecimal():
            yield root / row[0], int(row[2])


def wrong_file(path: Path, sizes: set[int]) -> str | None:
    """A file that is missing or of a wrong size. Two distributions can own one file: the last one has written it."""
    try:
        size = path.stat().st_size
    except OSError as error:
        return f"{path}: {(error.strerror or 'cannot be read').lower()}"
    wanted = " or ".join(map(str, sorted(sizes)))
    return None if size in sizes else f"{path}: {size} bytes, not {wanted}"


# --- proofs: each runs in a process of its own, and imports there what it needs


def prove_kt_kernel() -> Values:
    """Which of its extensions kt-kernel takes on this CPU."""
    module = import_module("kt_kernel")
    return {"variant": module.__cpu_variant__}


def prove_payload() -> Values:
    """The CUDA objects of sgl_kernel, which five wheels bring in parts, joined by upstream's own code: it compares
    their SHA-256. `import sgl_kernel` would do it as well, but fails without the driver's libcuda.so.1; so the package
    is entered without running its __init__.
    """
    package = types.ModuleType("sgl_kernel")
    package.__path__ = [str(find_package("sgl_kernel"))]
    sys.modules["sgl_kernel"] = package
    runtime, manifest = (import_module(f"sgl_kernel.{name}") for name in ("payload_runtime", "_payload_manifest"))
    paths = {name: Path(runtime.materialize_binary(name)) for name in manifest.BINARIES}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    return {"version": manifest.VERSION, "sizes": sizes, "folder": os.path.commonpath(list(paths.values()))}


def find_package(name: str) -> Path:
    """Where a package lies on sys.path."""
    for folder in sys.path:
        if Path(folder, name, "__init__.py").is_file():
            return Path(folder, name)
    raise ModuleNotFoundError(f"No module named {name!r}")


def prove_tilelang() -> Values:
    """tvm-ffi and tilelang in one process: each registers types in the other's table."""
    return {"tvm_ffi": import_module("tvm_ffi").__version__, "tilelang": import_module("tilelang").__version__}


def prove_server() -> Values:
    """The server's command line: its import takes transformers along, and runs without a GPU."""
    import_module("sglang.srt.server_args")
    return {}


def prove_overlay() -> Values:
    """All that the overlay checks before it lets the server start: settings, upstream's text, routing, kernels."""
    sys.path.insert(0, os.environ[OVERLAY_FOLDER])
    return {"asked": str(import_module("ktfleet.runtime.start").check())}


def prove_hooks() -> Values:
    """The overlay put in place, as sglang's import of it does: with the card's libraries upstream can be imported."""
    sys.path.insert(0, os.environ[OVERLAY_FOLDER])
    os.environ["SGLANG_EXTERNAL_MODEL_PACKAGE"] = "ktfleet.runtime"
    import_module("ktfleet.runtime")
    return {}


def prove_torch() -> Values:
    """The card as torch sees it, and a bf16 product on it beside the CPU's. An available card may still run nothing."""
    torch = import_module("torch")
    torch.manual_seed(1)
    left, right = (torch.randn(512, 512).to(torch.bfloat16) for _ in range(2))
    there = (left.cuda() @ right.cuda()).float().cpu()
    return {
        "name": torch.cuda.get_device_name(),
        "capability": list(torch.cuda.get_device_capability()),
        "architectures": torch.cuda.get_arch_list(),
        "error": distance(there, left.float() @ right.float()),
    }


def prove_sgl_kernel() -> Values:
    """One operation of sgl_kernel's compiled objects beside torch's."""
    torch, sgl_kernel = import_module("torch"), import_module("sgl_kernel")
    torch.manual_seed(1)
    rows, weight = (torch.randn(size).to(torch.bfloat16) for size in ((8, 4096), (4096,)))
    there = sgl_kernel.rmsnorm(rows.cuda(), weight.cuda(), 1e-6).float().cpu()
    scale = (rows.float().pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
    return {"error": distance(there, rows.float() * scale * weight.float())}


def prove_triton() -> Values:
    """A kernel compiled by this user, in its own cache."""
    torch, triton = import_module("torch"), import_module("triton")
    globals()["tl"] = import_module("triton.language")
    count = 1000
    source = torch.arange(count, dtype=torch.float32, device="cuda")
    target = torch.zeros(count, device="cuda")
    triton.jit(_double)[(triton.cdiv(count, 256),)](source, target, count, 256)
    return {"wrong": int((target.cpu() != source.cpu() * 2).sum())}


# Triton compiles its annotations, too: they may name nothing that is there for type checkers alone.
def _double(source, target, count, block: tl.constexpr):  # type: ignore[no-untyped-def]
    where = tl.program_id(0) * block + tl.arange(0, block)
    inside = where < count
    tl.store(target + where, tl.load(source + where, mask=inside) * 2, mask=inside)


def prove_fp8_gemm() -> Values:
    """Compile the server's FP8 product for sm_120, which no wheel brings: else its first start does, for minutes."""
    import_module("sglang.jit_kernel.fp8_blockwise_gemm")._jit_fp8_blockwise_module()
    return {"jobs": int(os.environ["MAX_JOBS"])}


def distance(seen: Any, wanted: Any) -> float:
    """Relative L2."""
    return float((seen - wanted).norm() / wanted.norm())


PAYLOADS = ("kt-kernel", "transformers-kt", "sglang-kt", "ktransformers", "accelerate-kt")
"""The distributions that bring sgl_kernel and the parts of its objects."""
OVERLAID = ("kt-kernel", "sglang-kt", "torch")
"""The distributions that the overlay hooks into."""
PROOFS: dict[str, tuple[tuple[str, ...], bool, int, Callable[[], Values]]] = {
    "kt_kernel": (("kt-kernel",), False, 180, prove_kt_kernel),
    "payload": (PAYLOADS, False, 300, prove_payload),
    "tilelang": (("apache-tvm-ffi", "tilelang"), False, 180, prove_tilelang),
    "server": (("sglang-kt", "transformers-kt"), False, 300, prove_server),
    "overlay": (OVERLAID, False, 180, prove_overlay),
    "hooks": (OVERLAID, True, 600, prove_hooks),
    "torch": (("torch",), True, 180, prove_torch),
    "sgl_kernel": ((*PAYLOADS, "torch"), True, 300, prove_sgl_kernel),
    "triton": (("torch", "triton"), True, 300, prove_triton),
    "fp8_gemm": (("sglang-kt", "flashinfer-python", "apache-tvm-ffi", "torch"), True, 1500, prove_fp8_gemm),
}
"""Name -> the packages of the lock that it is about, whether it needs a card, its limit in seconds, what does it."""


def max_jobs(cpus: int, available_gib: int) -> int:
    """Compilers at a time, 8 GiB for each, while 16 GiB are left to the rest.

    nvcc 13.0 took 7.3 GiB, and 100 s, for the FP8 product of sm_120a (16 Xeon CPUs, 2026-12-02).
    """
    return max(1, min(cpus, (available_gib - 16) // 8))


def available_gib() -> int:
    """MemAvailable; 0 where the kernel does not tell."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.M)
    return int(match[1]) >> 20 if match else 0


def surroundings() -> dict[str, str]:
    """The environment of a proof."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    toolkit = [str(Path(kept["CUDA_HOME"], "bin"))] if "CUDA_HOME" in kept else []
    path = ":".join([str(Path(sys.executable).parent), *toolkit, SYSTEM_PATH])
    jobs = max_jobs(len(os.sched_getaffinity(0)), available_gib())
    return {**kept, "PATH": path, "LC_ALL": "C.UTF-8", "MAX_JOBS": str(jobs)}


def attempt(name: str, limit_s: float) -> dict[str, Any]:
    """Make one proof in a process of its own. What it prints goes to a file: a pipe could be held by its children."""
    with tempfile.TemporaryDirectory() as folder, Path(folder, "said").open("w+b") as said:
        into = Path(folder, "values")
        command = [sys.executable, "-I", str(Path(__file__).resolve()), "--proof", name, "--into", str(into)]
        began = time.monotonic()
        process = subprocess.Popen(
            command, env=surroundings(), cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        stop(process)
        return {
            "seconds": round(time.monotonic() - began, 1),
            "limit_s": limit_s,
            "exit": code if code is not None and code >= 0 else None,
            "signal": name_of(-code) if code is not None and code < 0 else None,
            "values": read_values(into),
            "said": tail(said),
        }


def stop(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def name_of(number: int) -> str:
    """SIGILL for 4."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_values(path: Path) -> Values | None:
    """What a proof found; None when it did not come so far."""
    try:
        values: Values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values


def tail(file: BinaryIO) -> str:
    """The last lines of what a proof printed."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - SAID_BYTES))
    lines = [line.rstrip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return "\n".join(lines[-SAID_LINES:])


def measure(lock: Path, gpu: bool) -> dict[str, Any]:
    """The whole record."""
    locked = read_lock(lock)
    installed, damaged = read_installed()
    asked = {name: limit for name, (about, card, limit, _) in PROOFS.items()
             if set(about) <= set(locked) and (gpu or not card)
             and (about is not OVERLAID or OVERLAY_FOLDER in os.environ)}  # fmt: skip
    return {
        "schema": SCHEMA,
        "python": ".".join(map(str, sys.version_info[:3])),
        "prefix": sys.prefix,
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "gpu": gpu,
        "locked": locked,
        "installed": installed,
        "damaged": damaged,
        "proofs": {name: attempt(name, limit) for name, limit in asked.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--lock", type=Path, help="the hashed requirements file that the environment was installed from"
    )
    parser.add_argument("--gpu", action="store_true", help="prove what needs the card, too")
    parser.add_argument("--proof", choices=PROOFS, help="one proof, in this process")
    parser.add_argument("--into", type=Path, help="where its values go")
    asked = parser.parse_args()
    if asked.proof and asked.into:
        values = PROOFS[asked.proof][3]()
        asked.into.write_text(json.dumps(values), encoding="utf-8")
    elif asked.lock:
        print(json.dumps(measure(asked.lock, asked.gpu)))
    else:
        parser.error("--lock FILE, or --proof NAME --into FILE")


if __name__ == "__main__":
    main()
