"""A running virtual workstation: started, reached over ssh, rebooted and stopped."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab import emulator, gateway
from tests.lab.errors import LabError, require_programs, require_space
from tests.lab.image import USER, Image
from tests.lab.progress import Progress, Stopwatch, silent
from tests.lab.topology import LAB, Topology

HOST = "127.0.0.1"
SSH_LIMIT = 600.0  # seconds; a limit for broken machines, far above a slow one
ANSWER_SECONDS = 90.0  # one ssh call on a machine that is busy booting
BOOTS_BEFORE_STILL = 5  # a boot stands still when it takes as long as so many
OVERLAY_MIB = 1000
LAUNCH_LIMIT = 60.0
PORT_TRIES = 3


@dataclass
class Machine:
    """A machine of its own in `folder`; what it writes stays there, never in the image.

    Use it as a context manager, or `start()` and `stop()` it. `outlives` keeps it running when this process ends;
    without it the machine dies with the thread that started it, so that a killed test run leaves nothing behind.
    `data_disk` is a file that the machine has as a second disk, and keeps: it outlives the machine.
    """

    folder: Path
    image: Image
    topology: Topology = LAB
    name: str = "lab"
    outlives: bool = False
    data_disk: Path | None = None
    port: int = field(default=0, init=False)
    pid: int = field(default=0, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """The machine that `machine.json` in `folder` describes, started by another process."""
        known = json.loads((folder / "machine.json").read_text())
        sizes: dict[str, Any] = known["topology"]
        if isinstance(sizes["node_mib"], list):
            sizes["node_mib"] = tuple(sizes["node_mib"])
        image = Image(Path(known["key"]).parent)
        machine = cls(folder, image, Topology(**sizes), known["name"], outlives=True)
        machine.port, machine.pid = known["port"], known["pid"]
        return machine

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def known_hosts(self) -> Path:
        """The known_hosts file that holds the machine's fixed host key."""
        return self.folder / "known_hosts"

    @property
    def running(self) -> bool:
        """Whether qemu runs, or is about to be started again by a reboot of the machine."""
        if self._process is not None:
            return self._process.poll() is None
        with suppress(OSError):
            # The number may belong to another program by now: ours names its overlay.
            return os.fsencode(self._overlay) in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False

    def start(self, progress: Progress = silent, limit: float = SSH_LIMIT) -> Self:
        """Start qemu on a new overlay and wait until ssh answers, for `limit` seconds at most."""
        require_programs(("qemu-system-x86_64", "qemu-img", "ssh", "setpriv"))
        self.folder.mkdir(parents=True, exist_ok=True)
        require_space(self.folder, OVERLAY_MIB, "a machine")
        create = [
            "qemu-img",
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "qcow2",
            "-b",
            str(self.image.disk.resolve()),
        ]
        subprocess.run([*create, str(self._overlay)], check=True)
        try:
            self._launch()
            self._describe()
            self.wait_for_ssh(progress, limit)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End this machine's qemu, as pulling the plug does; data that the machine has not synced is lost."""
        for number, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            if not self.running:
                return
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            _wait_until(self._gone, seconds, every=0.1)

    def ssh_command(self, *command: str) -> list[str]:
        """The argv that reaches the machine, and runs `command` there as ssh would: words joined, then a shell."""
        options = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "60",
            "LogLevel": "ERROR",
        }
        settings = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        reach = ["-i", str(self.image.key), "-p", str(self.port), *settings]
        return ["ssh", "-F", "none", *reach, f"{USER}@{HOST}", *command]

    def run(self, command: str, *, sudo: bool = False, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the machine; with `check`, a failure raises what it said."""
        # What a test arranges is for everybody; only what ktfleet makes meets the machine's own umask.
        remote = f"sudo sh -c {shlex.quote(f'umask 022; {command}')}" if sudo else command
        done = subprocess.run(
            self.ssh_command(remote),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip() or "nothing on stderr"
            raise LabError(
                f"`{command}` failed on the machine {self.name}",
                seen=f"exit {done.returncode}, {said}",
                wanted="exit 0",
                do=f"look with: {shlex.join(self.ssh_command())}",
            )
        return done

    def boot_id(self) -> str:
        """The kernel's id of this boot: another one after each reboot, empty while ssh does not answer."""
        with suppress(subprocess.TimeoutExpired):
            command = self.ssh_command("cat /proc/sys/kernel/random/boot_id")
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ANSWER_SECONDS,
                check=False,
            )
            return done.stdout.strip() if done.returncode == 0 else ""
        return ""

    def reboot(self, progress: Progress = silent, limit: float = SSH_LIMIT) -> float:
        """Reboot from inside and wait for the new boot; returns the seconds that took."""
        before, start = self.boot_id(), time.monotonic()
        self.run("systemctl --no-block reboot", sudo=True)
        self.wait_for_ssh(progress, limit, other_than=before)
        return time.monotonic() - start

    def wait_for_ssh(self, progress: Progress = silent, limit: float = SSH_LIMIT, other_than: str = "") -> None:
        """Wait until a boot with an id other than `other_than` answers."""
        watch = Stopwatch(progress, f"booting {self.name}", self.topology.boot_seconds)
        while watch.seconds < limit:
            if not self.running:
                raise self._not_started()
            # A bare look first: an ssh client a second would cost the emulator a core it needs.
            if self._greets() and self.boot_id() not in ("", other_than):
                return
            watch.tick()
            time.sleep(0.5)
        raise LabError(
            f"the machine {self.name} does not answer ssh",
            seen=f"nothing for {watch.seconds:.0f} s, last on its console: {_last_line(self.folder / 'serial.log')}",
            wanted=f"an answer on {HOST} port {self.port}",
            do=f"read {self.folder}/serial.log",
        )

    @property
    def _overlay(self) -> Path:
        return self.folder.resolve() / "overlay.qcow2"

    def _qemu_command(self) -> list[str]:
        folder = self.folder.resolve()
        forward = f"hostfwd=tcp:{HOST}:{self.port}-:22"
        user = f"user,id=net0,restrict=on,{forward},{gateway.guest_forward(folder)}"
        data = f"file={self.data_disk},format=raw,if=none,id=data,cache=writeback"
        second = ("-drive", data, "-device", "virtio-blk-pci,drive=data,vectors=0") if self.data_disk else ()
        qemu = [
            *("qemu-system-x86_64", "-name", self.name, "-nodefaults", "-display", "none", "-monitor", "none"),
            *("-machine", "q35", "-accel", "tcg,thread=multi", *self.topology.qemu_arguments(), "-no-reboot"),
            *("-drive", f"file={self._overlay},if=none,id=disk,cache=unsafe", "-netdev", user),
            # Without MSI-X: QEMU 7.2 aborted once in msix_table_mmio_write while the guest booted.
            *("-device", "virtio-blk-pci,drive=disk,vectors=0", "-device", "virtio-rng-pci,vectors=0"),
            *("-device", "virtio-net-pci,netdev=net0,romfile=,vectors=0"),
            *second,
            *("-chardev", f"file,id=console,path={folder}/serial.log,append=on", "-serial", "chardev:console"),
            *("-pidfile", f"{folder}/pid"),
        ]
        still = str(BOOTS_BEFORE_STILL * self.topology.boot_seconds)
        again = [sys.executable, "-I", emulator.__file__, f"{folder}/serial.log", still, *qemu]
        return again if self.outlives else ["setpriv", "--pdeathsig", "TERM", *again]

    def _launch(self) -> None:
        for _ in range(PORT_TRIES):  # another program may take the free port before qemu does
            self.port = _free_port()
            with (self.folder / "qemu.log").open("wb") as log:
                self._process = subprocess.Popen(
                    self._qemu_command(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.pid = self._process.pid
            if _wait_until(self._made_or_ended, LAUNCH_LIMIT, every=0.1) and self.running:
                return
            if "host forwarding" not in (self.folder / "qemu.log").read_text(errors="replace"):
                break
        raise self._not_started()

    def _made_or_ended(self) -> bool:
        # qemu writes its pid file when all devices are made and the port is bound.
        return (self.folder / "pid").exists() or not self.running

    def _gone(self) -> bool:
        """Whether qemu ended as well as the shell above it: qemu still deletes its pid file on the way out."""
        if self.running:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self.pid, 0)
            return False
        return True

    def _describe(self) -> None:
        self.known_hosts.write_text(f"[{HOST}]:{self.port} {self.image.host_key}\n")
        known = {
            "name": self.name,
            "host": HOST,
            "port": self.port,
            "user": USER,
            "key": str(self.image.key.resolve()),
            "known_hosts": str(self.known_hosts.resolve()),
            "pid": self.pid,
            "topology": self.topology.as_dict(),
        }
        (self.folder / "machine.json").write_text(json.dumps(known, indent=2) + "\n")

    def _greets(self) -> bool:
        # qemu takes the connection before the machine does, so only sshd's first words count.
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=3) as connection:
            return connection.recv(4) == b"SSH-"
        return False

    def _not_started(self) -> LabError:
        return LabError(
            "the virtual machine did not start",
            seen=_last_line(self.folder / "qemu.log"),
            wanted="a running qemu",
            do=f"read {self.folder}/qemu.log",
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until(true: Callable[[], bool], seconds: float, every: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(every)
    return true()


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "nothing"
    return "nothing"
