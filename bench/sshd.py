"""An sshd of one's own: on loopback, in the foreground, as the present user. Its log counts the sessions."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ktfleet.problem import Problem, Refused

HOST = "127.0.0.1"
PRIVILEGE_SEPARATION = Path("/run/sshd")
"""sshd started by root wants this folder; otherwise its service makes it."""

_SBIN = "/usr/sbin:/sbin"
_START_S = 20.0
_STOP_S = 5.0
_CONFIG = """\
Port {port}
ListenAddress {host}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PidFile none
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitUserRC no
PrintMotd no
LogLevel VERBOSE
SetEnv {environment}
"""


@dataclass(frozen=True)
class Sshd:
    """A running one."""

    folder: Path
    port: int

    def data(self) -> dict[str, str | int]:
        """How pyinfra reaches it; nothing of the user's own ssh configuration is read."""
        return {
            "ssh_hostname": HOST,
            "ssh_port": self.port,
            "ssh_user": getpass.getuser(),
            "ssh_key": str(self.folder / "key"),
            "ssh_known_hosts_file": str(self.folder / "known_hosts"),
            "ssh_strict_host_key_checking": "yes",
            "ssh_config_file": str(self.folder / "no_config"),
        }

    def sessions(self) -> list[str]:
        """The log's line of each session so far: sshd writes one for each command and each subsystem."""
        return [line for line in self._log() if line.startswith("Starting session: ")]

    def connections(self) -> int:
        """How many connections were authenticated so far."""
        return sum(line.startswith("Accepted publickey ") for line in self._log())

    def _log(self) -> list[str]:
        return (self.folder / "log").read_text(errors="replace").splitlines()


@contextmanager
def running(folder: Path, environment: Mapping[str, str]) -> Iterator[Sshd]:
    """Start it, wait until it listens, stop it by its process id. Raises Refused when there is no sshd."""
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    if program is None:
        do = "run: sudo apt-get install openssh-server"
        raise Refused((Problem("a program is missing", "no sshd", "one to connect to", do),))
    folder.mkdir()
    sshd = Sshd(folder, _free_port())
    _write_keys(sshd)
    settings = " ".join(f'"{name}={value}"' for name, value in environment.items())
    config = folder / "sshd_config"
    config.write_text(_CONFIG.format(port=sshd.port, host=HOST, folder=folder, environment=settings))
    with _privilege_separation(), (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=log)
        try:
            _wait(sshd, process)
            yield sshd
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _write_keys(sshd: Sshd) -> None:
    for name in ("host_key", "key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(sshd.folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    public = (sshd.folder / "host_key.pub").read_text()
    (sshd.folder / "known_hosts").write_text(f"[{HOST}]:{sshd.port} {public}")


@contextmanager
def _privilege_separation() -> Iterator[None]:
    """Lend root's sshd its folder, and take it back."""
    if os.geteuid() != 0 or PRIVILEGE_SEPARATION.exists():
        yield
        return
    PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    try:
        yield
    finally:
        PRIVILEGE_SEPARATION.rmdir()


def _wait(sshd: Sshd, process: subprocess.Popen[bytes]) -> None:
    """Until the log says that it listens: a connection that only looks would be counted against us."""
    end = time.monotonic() + _START_S
    while not any(line.startswith("Server listening on ") for line in sshd._log()):
        if process.poll() is not None or time.monotonic() > end:
            seen = "; ".join(sshd._log()[-3:]) or "no word in its log"
            raise Refused((Problem("sshd does not start", seen, "Server listening", "repair what it says"),))
        time.sleep(0.02)
