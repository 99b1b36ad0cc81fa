"""CPUID's flags from py-cpuinfo, or the reason why there are none."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from ktfleet.host import second_opinion

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs x86-64")


def record() -> dict[str, Any]:
    return {"cpu_flags_cpuid": None, "unreadable": {"cpu_flags_cpuid": "the probe does not ask CPUID", "x": "y"}}


@X86
def test_this_cpu_is_asked() -> None:
    """x86-64 has SSE2; what only the kernel makes up (cpuid, rep_good) is not among CPUID's flags."""
    told = record()
    second_opinion.add_cpuid(told)
    assert {"fpu", "sse2"} <= set(told["cpu_flags_cpuid"])
    assert not {"cpuid", "rep_good", "constant_tsc"} & set(told["cpu_flags_cpuid"])
    assert told["unreadable"] == {"x": "y"}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise SystemExit('SELinux is enforcing')", "py-cpuinfo failed: SELinux is enforcing"),
        ("import os; os.kill(os.getpid(), 11)", "py-cpuinfo failed: exit status -11"),
        ("import time; time.sleep(60)", "py-cpuinfo did not run: "),
        ("print('x')", "Expecting value: "),
    ],
)
def test_no_second_opinion(monkeypatch: pytest.MonkeyPatch, source: str, why: str) -> None:
    """Refused by SELinux, killed, hanging, talking nonsense."""
    monkeypatch.setattr(second_opinion, "SOURCE", source)
    monkeypatch.setattr(second_opinion, "TIMEOUT_S", 1)
    told = record()
    second_opinion.add_cpuid(told)
    assert told["cpu_flags_cpuid"] is None
    assert told["unreadable"]["cpu_flags_cpuid"].startswith(why)
