"""`python -m tests.lab`: start, reach and stop virtual workstations by hand."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tests.lab.errors import LabError, require_programs
from tests.lab.image import image
from tests.lab.machine import Machine
from tests.lab.topology import LAB, REAL

STATE = Path(__file__).resolve().parents[2] / ".lab"
TOPOLOGIES = {"lab": LAB, "real": REAL}
LINE_SECONDS = 15  # between progress lines where there is no terminal


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 done, 1 it did not work, 2 asked for something impossible."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.action(options))
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    actions = parser.add_subparsers(required=True)
    up = actions.add_parser("up", help="start a machine, building its disk image first when there is none")
    up.add_argument("--topology", choices=TOPOLOGIES, default="lab", help="lab: 8 CPUs, real: 80 (default: lab)")
    up.add_argument("--suite", default="bookworm", help="Debian release (default: bookworm)")
    down = actions.add_parser("down", help="stop a machine and delete what it wrote")
    ssh = actions.add_parser("ssh", help="a shell on a machine, or a command after --")
    ssh.add_argument("command", nargs="*", help="what to run there")
    for action, does in ((up, _up), (down, _down), (ssh, _ssh)):
        action.add_argument("--name", default="demo", type=_name, help="of the machine (default: demo)")
        action.set_defaults(action=does)
    actions.add_parser("status", help="list the machines").set_defaults(action=_status)
    return parser


def _name(text: str) -> str:
    if not text.replace("-", "").isalnum():
        raise argparse.ArgumentTypeError(f"the name: seen {text!r}, wanted letters, digits and dashes; choose another")
    return text


def _up(options: argparse.Namespace) -> int:
    require_programs()
    folder = STATE / options.name
    if (folder / "machine.json").exists():
        if Machine.attach(folder).running:
            raise LabError(
                "the machine is up already",
                seen=options.name,
                wanted="a name that is free",
                do=f"stop it with: python -m tests.lab down --name {options.name}",
            )
        shutil.rmtree(folder)  # what a machine that was killed left behind
    with _Display() as display:
        disk = image(options.suite, display.show)
        machine = Machine(folder, disk, TOPOLOGIES[options.topology], options.name, outlives=True)
        machine.start(display.show)
    print(shlex.join(machine.ssh_command()))
    return 0


def _down(options: argparse.Namespace) -> int:
    _attached(options.name).stop()
    shutil.rmtree(STATE / options.name)
    return 0


def _ssh(options: argparse.Namespace) -> int:
    return subprocess.run(_attached(options.name).ssh_command(*options.command), check=False).returncode


def _status(_: argparse.Namespace) -> int:
    for description in sorted(STATE.glob("*/machine.json")):
        machine = Machine.attach(description.parent)
        state = f"running, pid {machine.pid}, port {machine.port}" if machine.running else "stopped"
        print(f"{machine.name}: {state}, {machine.topology.cpus} CPUs on {machine.topology.nodes} nodes")
    return 0


def _attached(name: str) -> Machine:
    if not (STATE / name / "machine.json").exists():
        names = ", ".join(sorted(path.parent.name for path in STATE.glob("*/machine.json"))) or "none"
        raise LabError(
            f"there is no machine {name}",
            seen=names,
            wanted=name,
            do=f"run: python -m tests.lab up --name {name}",
        )
    return Machine.attach(STATE / name)


class _Display:
    """Progress as one living line on a terminal, and as a line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, transient=True)
        self._said: tuple[str, int] = ("", -1)

    def __enter__(self) -> _Display:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, step: str, seconds: float, of_about: float) -> None:
        """Say how far a step is; a Progress."""
        usual = "of about" if seconds <= of_about else "so far, usually"
        text = f"{step}: {seconds:.0f} s {usual} {of_about:.0f} s"
        if self._console.is_terminal:
            self._live.update(text)
        elif (now := (step, int(seconds) // LINE_SECONDS)) != self._said:
            self._said = now
            self._console.print(text, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
