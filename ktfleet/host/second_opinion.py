"""The CPU's flags as CPUID itself tells them, by py-cpuinfo: /proc/cpuinfo has only what the kernel lets through.

`cpuinfo.get_cpu_info()` is of no use here: it starts with the flags of /proc/cpuinfo and of lscpu and adds CPUID's,
and it measures the clock for a second. Its class CPUID asks only CPUID. The names are py-cpuinfo's own
("avx512vnni" where Linux says "avx512_vnni"). It knows no AMX, and takes the flags of leaf 0x80000001 from a wrong
register: "lm", "nx" and "syscall" are missing on every CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

FIELD = "cpu_flags_cpuid"
TIMEOUT_S = 10
SOURCE = """
import json
from cpuinfo.cpuinfo import CPUID
cpuid = CPUID()
if cpuid.is_selinux_enforcing:
    raise SystemExit("SELinux is enforcing")
print(json.dumps(cpuid.get_flags(cpuid.get_max_extension_support())))
"""


def ask_cpuid() -> list[str]:
    """The sorted flags. Raises ValueError with the reason.

    In a process of its own: py-cpuinfo jumps into machine code that a hardened kernel kills.
    """
    try:
        done = subprocess.run([sys.executable, "-I", "-c", SOURCE], capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"py-cpuinfo did not run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise ValueError(f"py-cpuinfo failed: {said[-1] if said else f'exit status {done.returncode}'}")
    return sorted(set(map(str, json.loads(done.stdout))))


def add_cpuid(record: dict[str, Any]) -> None:
    """Put the flags into the probe's record of this machine, or the reason why there are none."""
    try:
        record[FIELD] = ask_cpuid()
        record["unreadable"].pop(FIELD, None)
    except ValueError as error:
        record["unreadable"][FIELD] = str(error)
