"""What it costs to deploy again to a host that is as wanted: .venv/bin/python -m bench.rerun [RUNS]

One host over ssh: `pyinfra -y INVENTORY deploy.py`, drift check included, with the inventory's own group_data. The
host is an sshd on loopback (bench/sshd.py) whose sessions find four stand-ins first in their PATH: `python3` gives
the probe, and nothing else, a captured workstation of 80 CPUs as its root; `sudo` only runs the command; `sysctl` and
`systemctl` read that tree and refuse to change anything. The tree is made converged here: the rendered files, the
wanted values. Nothing outside the temporary folder is written, except /run/sshd while it runs. It needs root: a
folder of the captured tree belongs to the service's account.

A round trip is one session in sshd's log ("Starting session": one for each command or file transfer, each in a
channel of its own), counted by sshd and not by pyinfra; connecting is counted apart. On the wire each is several.

Beside it, bench/plain_deploy.py: pyinfra's own facts and operations for the same decisions on the same tree, and both
with and without TCP_NODELAY (ktfleet's inventory has it, pyinfra's default has not). Compared: what it takes to find
out that nothing has to be changed. Not compared: the plain file judges fewer refusals, proves nothing at the end,
keeps no results; its systemctl answers at once. Not in any figure: a card (gpu = None), a real network, and
the time that real /proc and /sys files take.

A run that fails, changes anything, has a bad verdict or changes the tree ends the bench with exit code 2.
Machines are noisy: compare within one run. CPU seconds are pyinfra's alone, without sshd's and the probe's. They are
less noisy than the wall time.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import sshd
from ktfleet import config, plan, recipes, results, verdict
from ktfleet.config import Workstation
from ktfleet.host import bundle, probe
from ktfleet.host.state import HostState
from ktfleet.plan import Plan, account
from ktfleet.plan.files import paths, render
from ktfleet.plan.overlay import changes as overlay
from ktfleet.plan.places import (
    BEFORE,
    BOOT_UNIT,
    BOOT_UNIT_ENABLED,
    BOOT_UNIT_PATH,
    STACK,
    STACK_PROGRAM,
    SYSTEM_PYTHON,
    unit_file,
)
from ktfleet.plan.request import request
from ktfleet.plan.settings import UNCORE_MAX, UNCORE_MIN, Writer
from ktfleet.plan.stack import changes as stack
from ktfleet.problem import Problem, Refused
from ktfleet.pyinfra_api.facts import probe_arguments
from tests.trees import link, put, write_tree

ROOT = Path(__file__).parents[1]
IRQBALANCE_PROCESS = "/proc/812/environ"
"""Of the process that tests/trees.py shows."""

NAME = "ws01"
RUNS = 7
TARGET_S, TARGET_TRIPS = 2.0, 12

PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
PYTHON = str(Path(sys.executable).resolve())

_IMPORTS = "import pyinfra_cli.main, ktfleet.pyinfra_api.admission, ktfleet.pyinfra_api.operations"
_NOT_PASSED_ON = ("SSH_AUTH_SOCK", "PYINFRA_YES", "PYTHONDONTWRITEBYTECODE")

_STAND_INS = {
    "python3": """\
[ "$1 $2" = "-I -c" ] || exec {python} "$@"
exec {python} "$@" --root {root}
""",
    "sudo": """\
while :; do case "$1" in -*) shift ;; *) exec "$@" ;; esac; done
""",
    "sysctl": """\
for key; do
    case "$key" in -* | *=*) echo "sysctl: the bench changes nothing: $*" >&2; exit 1 ;; esac
    read -r value <"{root}/proc/sys/$(echo "$key" | tr . /)" || exit 1
    echo "$key = $value"
done
""",
    "systemctl": """\
[ "$1" = show ] || {{ echo "systemctl: the bench changes nothing: $*" >&2; exit 1; }}
echo "Id={unit}"
echo "SubState=exited"
[ -L "{root}{enabled}" ] && echo "UnitFileState=enabled" || echo "UnitFileState=disabled"
""",
}


@dataclass
class Variant:
    """One way to deploy, and what its runs took."""

    name: str
    command: tuple[str, ...]
    results: Path | None = None
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    trips: list[int] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)


def main() -> int:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    # Ended from outside, it still stops its sshd.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with tempfile.TemporaryDirectory(prefix="ktfleet-bench-") as name:
            _measure(Path(name), runs)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    return 0


def _measure(folder: Path, runs: int) -> None:
    tree = folder / "tree"
    made = converged_tree(tree)
    environment = {"PATH": f"{stand_ins(folder / 'bin', tree)}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    digest = _digest(tree)
    with sshd.running(folder / "sshd", environment) as server:
        variants = _variants(folder, server, made, tree)
        for variant in variants:
            _rehearse(variant)
        parts = _parts(folder, variants[0].command[2])
        times: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(runs):
            # In turn, so that what disturbs the machine disturbs all of them.
            for variant in variants:
                _run(variant, server)
            for name, command in parts.items():
                times[name].append(_seconds(command))
    if _digest(tree) != digest:
        raise _wrong("the captured tree", "other files than before", "the same", "a run has changed something")
    _report(variants, times, runs)


# The host


def _write_account(folder: Path) -> None:
    """The service's user with its home folder."""
    user, name = account.WANTED, account.ACCOUNT
    put(folder, "/etc/passwd", f"{name}:x:{user.uid}:{user.gid}::{user.home}:{user.shell}\n")
    put(folder, "/etc/group", f"{name}:x:{user.gid}:\n")
    home = folder / user.home.lstrip("/")
    home.mkdir(parents=True)
    home.chmod(int(account.HOME_MODE, 8))
    if os.geteuid() != 0:
        raise _wrong("the bench cannot give a folder away", f"user {os.geteuid()}", "root", "run it as root")
    os.chown(home, user.uid, user.gid)


def _write_stack(folder: Path, made: Plan) -> None:
    """As much of the server's environment as a second run looks at."""
    if made.stack is None:
        return
    put(folder, made.stack.job.complete, made.stack.job.name)
    link(folder, STACK, made.stack.job.folder)
    put(folder, STACK_PROGRAM, stack.program().content or "")
    for file in overlay.files(made):
        put(folder, file.path, file.content or "")


def converged_tree(folder: Path) -> Plan:
    """Write a workstation that is as inventory/group_data/ws.py wants it, and return its plan."""
    uncore = {
        pattern.replace("package_*_die_*", f"package_{socket:02d}_die_00"): "2400000\n"
        for pattern in (UNCORE_MIN, UNCORE_MAX)
        for socket in (0, 1)
    }
    write_tree(folder, files=uncore)
    # Debian's own.
    link(folder, "/etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service", "/lib/systemd/system/x.service")
    wanted = config.parse(_group_data(), NAME)
    recipe = recipes.load(wanted.recipe)
    link(folder, SYSTEM_PYTHON, "python3.11")
    fresh = _state(folder, wanted)
    made = plan.make(fresh, wanted, recipe)
    for path in paths():
        file = render(made, path)
        if file.content is not None:
            put(folder, path, file.content).chmod(int(file.mode, 8))
    for setting in made.settings:
        if setting.row.writer is Writer.SYSCTL:
            put(folder, "/proc/sys/" + setting.key.replace(".", "/"), setting.wanted + "\n")
        elif setting.row.writer is Writer.SYSFS:
            for path in _places(setting.key, fresh):
                put(folder, path, setting.wanted + "\n")
        elif setting.row.writer is Writer.MASK:
            link(folder, unit_file(setting.key), "/dev/null")
        elif setting.row.writer is Writer.IRQBALANCE:
            put(folder, IRQBALANCE_PROCESS, f"{setting.key}={setting.wanted}\0")
    link(folder, BOOT_UNIT_ENABLED, BOOT_UNIT_PATH)
    _write_account(folder)
    _write_stack(folder, made)
    record = {**{setting.key: {} for setting in made.settings}, "files": dict.fromkeys(paths())}
    put(folder, BEFORE, json.dumps(record) + "\n")
    bad = [
        *made.refusals,
        *made.unknown,
        *(judged.difference for judged in verdict.drift(made, _state(folder, wanted)) if not judged.good),
    ]
    if bad:
        do = "write them in bench/rerun.py's converged_tree too"
        raise _wrong("the bench's workstation is not converged", " | ".join(map(str, bad)), "no difference", do)
    return made


def _places(key: str, fresh: HostState) -> list[str]:
    return [path for path in fresh.sysfs if fnmatchcase(path, key)] if "*" in key else [key]


def _group_data() -> dict[str, Any]:
    """inventory/group_data/ws.py, as pyinfra reads it, without card and data disk: the captured tree has neither."""
    names: dict[str, Any] = {}
    exec((ROOT / "inventory/group_data/ws.py").read_text(), names)
    return {name: value for name, value in names.items() if not name.startswith("_")} | {
        "gpu": None, "data": None, "weights": None,
    }  # fmt: skip


def _state(folder: Path, wanted: Workstation) -> HostState:
    return HostState.model_validate(probe.collect(str(folder), **asdict(request(wanted))))


def stand_ins(folder: Path, tree: Path) -> Path:
    """Write the programs that a session finds before the machine's."""
    folder.mkdir()
    for name, text in _STAND_INS.items():
        file = folder / name
        body = text.format(python=PYTHON, root=tree, unit=BOOT_UNIT, enabled=BOOT_UNIT_ENABLED)
        file.write_text("#!/bin/sh\n" + body)
        file.chmod(0o755)
    return folder


def _digest(tree: Path) -> str:
    """Of all that the tree holds: names, modes, contents, links."""
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        digest.update(f"{path} {path.lstat().st_mode:o}\n".encode())
        digest.update(os.fsencode(path.readlink()) if path.is_symlink() else b"")
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


# The runs


def _variants(folder: Path, server: sshd.Sshd, made: Plan, tree: Path) -> list[Variant]:
    """ktfleet as the inventory has it comes first; the ratios are against it."""
    no_card: dict[str, Any] = {"gpu": None}
    nagle: dict[str, Any] = {"ssh_paramiko_connect_kwargs": {}}
    group_data = "--group-data", str(ROOT / "inventory/group_data")
    plain = {"_sudo": True, "root": str(tree), "rendered": str(folder / "rendered"), "wanted": _wanted(made, folder)}
    nodelay = folder / "nodelay"
    nodelay.mkdir()
    (nodelay / "all.py").write_text(
        "from ktfleet.pyinfra_api import transport\n"
        'ssh_paramiko_connect_kwargs = {"transport_factory": transport.nodelay}\n'
    )

    def variant(name: str, deploy: str, data: dict[str, Any], *options: str, ours: bool = False) -> Variant:
        slug = name.replace(" ", "-").replace(",", "")
        # Named ws.py: the file's name is a group, and ktfleet's group data hang on it.
        file = folder / slug / "ws.py"
        file.parent.mkdir()
        file.write_text(f"ws = {[(NAME, {**server.data(), **data})]!r}\n")
        command = (PYINFRA, "-y", str(file), deploy, *options)
        return Variant(name, command, results=folder / slug / "results" if ours else None)

    return [
        variant("ktfleet", "deploy.py", no_card, *group_data, ours=True),
        variant("ktfleet, Nagle", "deploy.py", nagle | no_card, *group_data, ours=True),
        variant("plain pyinfra", "bench/plain_deploy.py", plain),
        variant("plain pyinfra, nodelay", "bench/plain_deploy.py", plain, "--group-data", str(nodelay)),
    ]


def _wanted(made: Plan, folder: Path) -> dict[str, Any]:
    """What the plain deploy file needs of the plan, and the rendered files in `folder`."""
    files = [render(made, path) for path in paths()]
    for file in files:
        if file.content is not None:
            put(folder / "rendered", file.path, file.content)

    def values(writer: Writer) -> dict[str, str]:
        return {setting.key: setting.wanted for setting in made.of(writer)}

    return {
        "before": BEFORE,
        "files": {file.path: file.mode for file in files if file.content is not None},
        "no_files": [file.path for file in files if file.content is None],
        "unit": BOOT_UNIT,
        "sysctl": values(Writer.SYSCTL),
        "sysfs": values(Writer.SYSFS),
        "masked": [unit_file(key) for key in values(Writer.MASK)],
        "command_line": [f"{key}={value}" for key, value in values(Writer.CMDLINE).items()],
    }


def _pyinfra(variant: Variant, *options: str) -> tuple[float, float, str]:
    """Wall and CPU seconds of one run and its standard output. Raises Refused when it fails."""
    environment = _environment() | ({"KTFLEET_RESULTS": str(variant.results)} if variant.results else {})
    command = [*variant.command, *options]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=said
        )
        # wait4 tells this process' CPU time, which a busy machine does not stretch.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said.seek(0)
        if process.returncode:
            print(out.read(), said.read(), sep="\n", file=sys.stderr)
            raise _wrong(f"a run of {variant.name}", f"exit code {process.returncode}", "0", "its output is above")
        return wall, usage.ru_utime + usage.ru_stime, out.read()


def _environment() -> dict[str, str]:
    """A user's, as far as it matters: an ssh agent's keys are not tried, Python may keep its bytecode."""
    return {name: text for name, text in os.environ.items() if name not in _NOT_PASSED_ON}


def _rehearse(variant: Variant) -> None:
    """One run that is not timed: it must change nothing."""
    printed = _pyinfra(variant, "--json")[2]
    totals = json.loads(printed[printed.index("{") :])["results"]["totals"]
    if totals["success"] or totals["error"] or not totals["no_change"]:
        do = "the bench's tree and the deploy do not agree"
        raise _wrong(f"a run of {variant.name}", f"operations: {totals}", "no_change only", do)


def _run(variant: Variant, server: sshd.Sshd) -> None:
    """One timed run, whose verdicts must be good."""
    if variant.results is not None:
        for file in variant.results.glob("*"):
            file.unlink()
    sessions, connections = len(server.sessions()), server.connections()
    wall, cpu, _ = _pyinfra(variant)
    variant.wall.append(wall)
    variant.cpu.append(cpu)
    variant.trips.append(len(server.sessions()) - sessions)
    variant.connections.append(server.connections() - connections)
    if variant.results is not None:
        _check_verdicts(variant.results)


def _check_verdicts(folder: Path) -> None:
    for host in results.load(folder):
        checks = {name: check.verdicts for name, check in host.checks.items()}
        bad = [str(judged) for verdicts in checks.values() for judged in verdicts if not judged.good]
        if bad or not checks.get("admission") or len(checks.get("drift", ())) < len(paths()):
            seen = " | ".join(bad) or f"{ {name: len(found) for name, found in checks.items()} } verdicts"
            raise _wrong(f"the verdicts of {host.host}", seen, "pass or skipped, all of them", "see above")


def _wrong(what: str, seen: str, wanted: str, do: str) -> Refused:
    return Refused((Problem(what, seen, wanted, do),))


# Where the time goes


def _parts(folder: Path, inventory: str) -> dict[str, tuple[str, ...]]:
    """What a run of ktfleet consists of, each by itself."""
    group_data = "--group-data", str(ROOT / "inventory/group_data")
    source = bundle.source()
    return {
        "interpreter and import of pyinfra (pyinfra --version)": (PYINFRA, "--version"),
        "the same and import of ktfleet": (sys.executable, "-c", _IMPORTS),
        "interpreter, import of pyinfra, connect, one command (pyinfra exec)": (
            *(PYINFRA, "-y", *group_data, inventory, "exec", "--", "true"),
        ),
        "one probe without ssh, 80 CPUs (a run has two)": (
            *(str(folder / "bin/python3"), "-I", "-c", source, *probe_arguments()),
        ),
    }


def _seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter() - start


# What is printed


def _report(variants: Sequence[Variant], parts: dict[str, list[float]], runs: int) -> None:
    ours = variants[0]
    table = Table(title=f"Second run, one host, {runs} runs", title_justify="left")
    for title in ("variant", "best s", "median s", "of ktfleet", "CPU s", "connections", "round trips"):
        table.add_column(title, justify="left" if title == "variant" else "right")
    for variant in variants:
        ratio = statistics.median(variant.wall) / statistics.median(ours.wall)
        table.add_row(
            variant.name,
            f"{min(variant.wall):.2f}",
            f"{statistics.median(variant.wall):.2f}",
            f"{ratio:.2f}",
            f"{statistics.median(variant.cpu):.2f}",
            _range(variant.connections),
            _range(variant.trips),
        )
    where = Table(title="Where ktfleet's time goes", title_justify="left")
    for title in ("part, by itself", "best s", "median s"):
        where.add_column(title, justify="left" if title.startswith("part") else "right")
    for name, times in parts.items():
        where.add_row(name, f"{min(times):.2f}", f"{statistics.median(times):.2f}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(where)
    console.print(
        f"target: {TARGET_S:.0f} s, best run {_reached(min(ours.wall), TARGET_S)}, "
        f"median {_reached(statistics.median(ours.wall), TARGET_S)}; "
        f"{TARGET_TRIPS} round trips, {_reached(max(ours.trips), TARGET_TRIPS)}",
        highlight=False,
    )
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT, capture_output=True, text=True
    )
    console.print(
        f"commit {commit.stdout.strip() or 'unknown'}, Python {platform.python_version()}, "
        f"pyinfra {version('pyinfra')}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}",
        highlight=False,
    )


def _reached(number: float, target: float) -> str:
    return "reached" if number <= target else "missed"


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"


if __name__ == "__main__":
    sys.exit(main())
