"""Verdicts on the CUDA toolkit that compiles on the host."""

from __future__ import annotations

from ktfleet.config import Gpu
from ktfleet.judge.gpu.gaps import unknown
from ktfleet.measure.gpu_record import Record, Toolkit
from ktfleet.verdict import Verdict


def judge(wanted: Gpu, record: Record) -> tuple[Verdict, ...]:
    """The wanted nvcc, what a shell would find instead, CUDA_HOME."""
    return (_nvcc(wanted, record), _on_path(wanted, record), _cuda_home(record))


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def _package(wanted: Gpu) -> str:
    return f"install cuda-toolkit-{wanted.toolkit.replace('.', '-')} (not the metapackage cuda: it pulls drivers)"


def _nvcc(wanted: Gpu, record: Record) -> Verdict:
    compute = wanted.sm.replace("sm_", "compute_")
    key, text = "gpu nvcc", f"release {wanted.toolkit} with {compute}"
    why = "flashinfer and others compile for this card at their first start"
    tools = record.toolkit
    if tools is None:
        return unknown(key, text, record.why("toolkit", "measurement"))
    if tools.nvcc is None:
        if f"{tools.folder}/bin/nvcc" not in record.unreadable:
            return unknown(key, text, "it was not told")
        return Verdict(key, "fail", f"none in {tools.folder}", text, why, _package(wanted))
    nvcc = tools.nvcc
    if nvcc.release is None or nvcc.archs is None:
        return unknown(key, text, f"{nvcc.path} says: {nvcc.text}")
    if nvcc.release != wanted.toolkit:
        return Verdict(key, "fail", f"release {nvcc.release} in {tools.folder}", text, why, _package(wanted))
    if compute not in nvcc.archs:
        return Verdict(key, "fail", f"release {nvcc.release} without {compute}", text, why, _package(wanted))
    return Verdict(key, "pass", f"release {nvcc.release} with {compute}", text, why)


def _on_path(wanted: Gpu, record: Record) -> Verdict:
    """None there is fine: the server gets its own PATH. An older one is what other builds would take."""
    key, text = "gpu nvcc on PATH", f"none, or {wanted.toolkit} or newer first"
    why = "a build takes the first one, and an older one does not know the card"
    found = record.toolkit.on_path if record.toolkit else None
    if found is None:
        return unknown(key, text, record.why("login", "toolkit", "measurement"))
    if not found:
        return Verdict(key, "pass", "none", text, why)
    first = found[0]
    if first.release is None:
        return unknown(key, text, f"{first.path} says: {first.text}")
    if _numbers(first.release) < _numbers(wanted.toolkit):
        do = "remove it (Debian's package is nvidia-cuda-toolkit), or put the wanted toolkit's bin before it"
        return Verdict(key, "fail", f"{first.release} at {first.path}", text, why, do)
    return Verdict(key, "pass", f"{first.release} at {first.path}", text, why)


def _cuda_home(record: Record) -> Verdict:
    key, wanted, tools = "CUDA_HOME", "not /usr", record.toolkit
    why = "with /usr flashinfer's include paths break the system's own headers"
    if tools is None or tools.cuda_home is None:
        return unknown(key, wanted, record.why("login", "toolkit", "measurement"))
    if tools.cuda_home.rstrip("/") == "/usr":
        return Verdict(key, "fail", "/usr", wanted, why, f"remove it from {_setters(tools)}")
    return Verdict(key, "pass", tools.cuda_home or "not set", wanted, why)


def _setters(tools: Toolkit) -> str:
    return ", ".join(tools.cuda_home_from) or "the profile of the login shell"
