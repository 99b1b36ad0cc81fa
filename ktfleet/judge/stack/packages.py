"""What is installed, beside what the lock names."""

from __future__ import annotations

from collections.abc import Iterator

from ktfleet.measure.stack_record import Record
from ktfleet.verdict import Verdict

_REINSTALL = "remove {prefix} and run deploy.py again; install nothing into it by hand"
_SHOWN = 20
"""Differences that one verdict lists."""

ONE_OF = {"transformers": "transformers-kt", "accelerate": "accelerate-kt", "pynvml": "nvidia-ml-py"}
"""A distribution, and the one whose module it overwrites: both are called the same in Python."""

_ALIKE = ("flashinfer-python", "flashinfer-cubin")


def judge(record: Record) -> Iterator[Verdict]:
    """Set, files, and the packages that must not meet."""
    yield _equal(record)
    yield _files(record)
    yield _alone(record)
    yield _flashinfer(record)


def _equal(record: Record) -> Verdict:
    why = "a package at another version is the commonest reason why a server that worked does not start any more"
    wanted = f"the lock's {len(record.locked)} packages"
    if not record.locked:
        return Verdict("stack packages", "inconclusive", "an empty lock", "packages", "the lock names no package")
    names = sorted({*record.locked, *record.installed})
    pairs = ((name, record.installed.get(name, ()), record.locked.get(name)) for name in names)
    differing = [_pair(name, seen, lock) for name, seen, lock in pairs if seen != ((lock,) if lock else ())]
    if differing:
        return Verdict("stack packages", "fail", _list(differing), wanted, why, _do(record))
    return Verdict("stack packages", "pass", wanted, wanted, why)


def _pair(name: str, seen: tuple[str, ...], locked: str | None) -> str:
    return f"{name} {' and '.join(seen) or 'missing'} (locked: {locked or 'not at all'})"


def _files(record: Record) -> Verdict:
    why = "a file that is missing or cut short shows itself only when the server needs it"
    wanted = "every file that the packages record, at its size"
    if record.damaged:
        lines = [f"{name}: {what}" for name, what in sorted(record.damaged.items())]
        return Verdict("stack files", "fail", _list(lines), wanted, why, _do(record))
    return Verdict("stack files", "pass", "all there", wanted, why)


def _alone(record: Record) -> Verdict:
    why = "both own the same module, and the one installed last wins"
    both = [f"{name} beside {kt}" for name, kt in ONE_OF.items() if {name, kt} <= set(record.installed)]
    wanted = f"none of {', '.join(ONE_OF)}"
    if both:
        return Verdict("stack conflicts", "fail", _list(both), wanted, why, _do(record))
    return Verdict("stack conflicts", "pass", "none", wanted, why)


def _flashinfer(record: Record) -> Verdict:
    why = "flashinfer refuses to start with compiled kernels of another version"
    if not set(_ALIKE) & set(record.locked):
        return Verdict("flashinfer", "skipped", "not looked at", "nothing", "the lock has no flashinfer")
    python, cubin = (" and ".join(record.installed.get(name, ("none",))) for name in _ALIKE)
    seen, wanted = f"python {python}, cubin {cubin}", "one version of both"
    if python != cubin or python == "none":
        return Verdict("flashinfer", "fail", seen, wanted, why, _do(record))
    return Verdict("flashinfer", "pass", seen, wanted, why)


def _do(record: Record) -> str:
    return _REINSTALL.format(prefix=record.prefix)


def _list(texts: list[str]) -> str:
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
