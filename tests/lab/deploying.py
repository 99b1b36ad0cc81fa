"""Real pyinfra runs against a machine, and what they left there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktfleet.plan.settings import (
    COMPACTION,
    EPP,
    GLIBC_TUNABLES,
    GOVERNOR,
    MEMORY_SWAP_MAX,
    TURBO_OFF,
    UNCORE_MIN,
    WAKE_LATENCY,
)
from tests.lab.machine import Machine

ROOT = Path(__file__).parents[2]
PYINFRA = Path(sys.executable).with_name("pyinfra")
NO_REBOOT = ("--data", "kernel_command_line=[]")
"""Arguments of a deploy that leaves the kernel command line alone, and so needs no reboot."""

SKIPPED = {
    GOVERNOR: "no cpufreq directory: the BIOS controls the clocks (set its power control to OS) or the CPU is virtual",
    EPP: "no hardware P-states (HWP): the governor alone decides",
    TURBO_OFF: "no intel_pstate driver: the BIOS controls turbo, or the CPU is virtual",
    UNCORE_MIN: "no intel_uncore_frequency driver for this CPU, or it is virtual",
    **dict.fromkeys(
        (WAKE_LATENCY, COMPACTION, MEMORY_SWAP_MAX, GLIBC_TUNABLES),
        "the server does not run: it takes effect at its next start",
    ),
}
"""What the virtual machine cannot have, and what waits for a server. Any other skip, or one less, fails."""

EVERY_FILE = "find /etc /usr/local /var/lib/ktfleet /boot/grub/grub.cfg -type f | sort | xargs sha256sum"


@dataclass(frozen=True)
class Run:
    """One pyinfra run against the machine. checks: a check's name -> key of a verdict -> the verdict."""

    done: subprocess.CompletedProcess[str]
    checks: dict[str, dict[str, dict[str, Any]]]

    @property
    def verdicts(self) -> dict[str, dict[str, Any]]:
        """Of the drift check."""
        return self.checks.get("drift", {})

    @property
    def code(self) -> int:
        return self.done.returncode

    @property
    def said(self) -> str:
        return self.done.stdout + self.done.stderr

    @property
    def changed(self) -> int:
        """Operations that changed something: pyinfra's own count."""
        return int(json.loads(self.done.stdout)["results"]["totals"]["success"])

    def results(self, *wanted: str) -> set[str]:
        return {key for key, verdict in self.verdicts.items() if verdict["result"] in wanted}

    @property
    def skipped(self) -> dict[str, str]:
        return {key: self.verdicts[key]["why"] for key in self.results("skipped")}

    @property
    def proven(self) -> bool:
        """Whether the run ended well, and every setting and file is as wanted or rightly skipped."""
        good = self.results("pass", "skipped") == set(self.verdicts) != set()
        return self.code == 0 and good and self.skipped == SKIPPED


def environment(machine: Machine) -> dict[str, str]:
    """What tells inventory/lab.py which machine, and results where to."""
    return {
        **os.environ,
        "KTFLEET_LAB": str(machine.folder / "machine.json"),
        "KTFLEET_RESULTS": str(machine.folder / "results"),
    }


def pyinfra(machine: Machine, deploy: str, *arguments: str) -> Run:
    return _run(machine, "-y", "--json", "inventory/lab.py", deploy, *arguments)


def dry_run(machine: Machine, *arguments: str) -> Run:
    """A run of deploy.py that touches nothing. Without -y and --json: pyinfra compares nothing with them."""
    return _run(machine, "--dry", "inventory/lab.py", "deploy.py", *arguments)


def _run(machine: Machine, *arguments: str) -> Run:
    command = [str(PYINFRA), *arguments]
    stored = machine.folder / "results" / "lab.json"
    stored.unlink(missing_ok=True)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(machine),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    checks = json.loads(stored.read_text())["checks"] if stored.exists() else {}
    return Run(done, {name: {each["key"]: each for each in check["verdicts"]} for name, check in checks.items()})


def files(machine: Machine) -> dict[str, str]:
    """path -> sha256 of everything that a deploy could write."""
    lines = machine.run(EVERY_FILE, sudo=True).stdout.splitlines()
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in lines)}
