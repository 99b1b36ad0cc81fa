"""Driver and toolkit from an apt repository: what breaks on the way, the installation, and what keeps it.

The packages are stubs under the real names; apt, dpkg, their signatures and pins, the initramfs and the kernel that
loads the module are real. The card is a folder in the place of /sys/bus/pci/devices.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import gateway
from tests.lab.deploying import Run, files, pyinfra
from tests.lab.machine import Machine
from tests.lab.packages import stubs
from tests.lab.packages.repository import Key, publish

pytestmark = pytest.mark.lab

DEVICES = "/sys/bus/pci/devices"
FAKE_CARD = (
    f"mount -t tmpfs lab {DEVICES} && mkdir {DEVICES}/0000:3b:00.0 && cd {DEVICES}/0000:3b:00.0 "
    "&& echo 0x030000 > class && echo 0x10de > vendor && echo 0x2b85 > device"
)

MIRROR = "cuda/debian12/x86_64"
SOURCES = f"deb [signed-by=/etc/apt/lab.gpg] {gateway.URL}/debian ./"
VERSIONS = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'"


class Repositories:
    """Debian's and NVIDIA's, below one folder that the machine reaches, or does not."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder, self.key = machine, folder, Key(folder)
        self.kernel = machine.run("uname -r").stdout.strip()
        self.version = machine.run("dpkg-query -W -f '${Version}' linux-image-amd64").stdout
        publish(folder / "debian", "Debian", stubs.of_debian(self.kernel, self.version), self.key)
        publish(folder / MIRROR, "NVIDIA", stubs.of_nvidia(), self.key)
        deb = stubs.keyring(self.key.public).build(folder)
        self.digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        deb.rename(folder / MIRROR / "cuda-keyring_1.1-1_all.deb")

    def deploy(self, *arguments: str, up: bool = True, file: str = "deploy.py", **gpu: object) -> Run:
        """deploy.py, or another file, for a host with a card, its mirror up or down. gpu: keys of its configuration."""
        wanted = {"repository": f"{gateway.URL}/cuda", "keyring_sha256": self.digest, **gpu}
        if not up:
            return pyinfra(self.machine, file, "--data", f"gpu={json.dumps(wanted)}", *arguments)
        with gateway.serving(self.machine.folder, self.folder):
            return self.deploy(*arguments, up=False, file=file, **gpu)

    def apt(self, *arguments: str) -> str:
        """What apt-get says to an administrator who runs it by hand."""
        with gateway.serving(self.machine.folder, self.folder):
            return self.machine.run(f"apt-get {shlex.join(arguments)}", sudo=True).stdout


@pytest.fixture(scope="module")
def repositories(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    found = Repositories(machine, tmp_path_factory.mktemp("repositories"))
    assert pyinfra(machine, "deploy.py").proven, "so that only the card makes a difference"
    public = found.key.public.read_bytes().hex()
    write_key = f'open("/etc/apt/lab.gpg", "wb").write(bytes.fromhex("{public}"))'
    machine.run(f"python3 -c {shlex.quote(write_key)}; echo {shlex.quote(SOURCES)} > /etc/apt/sources.list", sudo=True)
    machine.run(FAKE_CARD, sudo=True)
    yield found
    machine.run(f"umount --lazy {DEVICES}", sudo=True)
    found.key.close()


def installed(machine: Machine) -> dict[str, str]:
    """The packages of the driver and the toolkit, with what dpkg says of them."""
    lines = machine.run(VERSIONS).stdout.splitlines()
    found = (line.split() for line in lines)
    return {words[0]: words[1] for words in found if words[-1] == "installed"}


def nothing_installed(machine: Machine, run: Run) -> bool:
    assert run.code == 1, run.said
    assert "Traceback" not in run.said
    return not any(name == "gcc" or name.startswith(("nvidia-", "cuda-")) for name in installed(machine))


def test_a_mirror_that_is_down(machine: Machine, repositories: Repositories) -> None:
    run = repositories.deploy(up=False)
    assert nothing_installed(machine, run)
    url = f"{gateway.URL}/{MIRROR}/cuda-keyring_1.1-1_all.deb"
    assert run.said.count(f"the keyring of NVIDIA's repository: seen no file at {url}, wanted it; repair the way") == 1


def test_another_key_than_the_known_one(machine: Machine, repositories: Repositories) -> None:
    run = repositories.deploy(keyring_sha256="0" * 64)
    assert nothing_installed(machine, run)
    assert (
        run.said.count(f"NVIDIA's repository: seen {repositories.digest}, wanted {'0' * 64}; compare {gateway.URL}")
        == 1
    )
    assert "/etc/apt/keyrings" not in "".join(files(machine)), "a key that is not proven is not kept"


def test_every_package_that_the_mirror_lacks_is_named(machine: Machine, repositories: Repositories) -> None:
    debian = repositories.folder / "debian"
    stock = stubs.of_debian(repositories.kernel, repositories.version)
    publish(debian, "Debian", tuple(stub for stub in stock if stub.name != "python3-dev"), repositories.key)
    run = repositories.deploy(toolkit="13.0")
    publish(debian, "Debian", stock, repositories.key)
    assert nothing_installed(machine, run)
    assert (
        run.said.count("packages are not in the repositories: seen cuda-toolkit-13-0 python3-dev, wanted all of") == 1
    )


def test_an_installation_that_is_cut(machine: Machine, repositories: Repositories) -> None:
    watcher = "until [ -e /usr/src/nvidia-current/version ]; do sleep 0.02; done; pkill -KILL dpkg; pkill -KILL apt-get"
    machine.run(f"setsid timeout 300 sh -c {shlex.quote(watcher)} >/dev/null 2>&1 </dev/null &", sudo=True)
    run = repositories.deploy()
    assert run.code == 1, run.said
    assert "Traceback" not in run.said
    assert machine.run("dpkg --audit", sudo=True).stdout != "", "something is half installed"


def test_the_next_run_finishes_it(machine: Machine, repositories: Repositories) -> None:
    run = repositories.deploy()
    assert run.results("fail", "inconclusive") == set(), run.said
    assert "Finish an interrupted installation" in run.done.stderr
    assert machine.run("dpkg --audit", sudo=True).stdout == ""
    found = installed(machine)
    for name in ("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced", "libcuda1"):
        assert found[name] == f"{stubs.DRIVER}-1", "595 is in the repository too"
    assert {"cuda-toolkit-12-9", "linux-headers-amd64", "gcc", "g++", "python3-dev"} <= set(found)
    assert machine.run("cat /sys/module/nvidia/version").stdout.strip() == stubs.DRIVER
    names = machine.run(f"lsinitramfs /boot/initrd.img-{repositories.kernel} | grep modprobe.d", sudo=True).stdout
    assert "etc/modprobe.d/ktfleet-nouveau.conf" in names
    enabled = machine.run("systemctl show -P Wants multi-user.target").stdout
    assert "nvidia-persistenced.service" in enabled
    assert "--no-persistence-mode" not in machine.run("systemctl show -P ExecStart nvidia-persistenced").stdout


def test_the_check_says_that_no_card_answers(machine: Machine, repositories: Repositories) -> None:
    """A second run changes nothing, also when the mirror is down; only the check by itself, which measures, fails."""
    before = files(machine)
    run = repositories.deploy(up=False)
    assert run.code == 0, run.said
    assert "] Success" not in run.said, "no operation changed anything"
    assert run.results("fail", "inconclusive") == set(), run.said
    assert files(machine) == before
    run = repositories.deploy(up=False, file="checks/gpu.py")
    assert run.code == 1
    assert "gpu card: seen " in run.said


def test_the_pin_holds_against_a_newer_driver(machine: Machine, repositories: Repositories) -> None:
    repositories.apt("-qq", "update")
    assert stubs.NEWER in machine.run("apt-cache madison nvidia-driver-cuda", sudo=True).stdout
    assert "Inst " not in repositories.apt("--simulate", "dist-upgrade")
    assert f"Inst libcuda1 [{stubs.DRIVER}-1] ({stubs.NEWER}-1" not in repositories.apt(
        "--simulate", "install", "libcuda1"
    )


@pytest.mark.long
def test_a_kernel_without_its_module_is_not_rebooted_into(machine: Machine, repositories: Repositories) -> None:
    """An administrator's upgrade brought a kernel whose headers the mirror does not have yet."""
    stock = stubs.of_debian(repositories.kernel, repositories.version)
    kernel = stubs.upgraded_kernel(repositories.kernel, repositories.version + "+1")
    publish(repositories.folder / "debian", "Debian", (*stock, kernel), repositories.key)
    repositories.apt("-qq", "update")
    repositories.apt("-qq", "-y", "install", kernel.name)
    boot = machine.boot_id()
    run = repositories.deploy("--data", 'kernel_command_line=["transparent_hugepage", "mitigations"]')
    assert run.code == 1
    assert run.said.count(
        f"the kernel that boots next has no NVIDIA module: seen nvidia/{stubs.DRIVER}, {repositories.kernel}, x86_64: "
        f"installed, wanted one for {stubs.NEXT_KERNEL}; install its headers and run `dkms autoinstall -k"
    ) == 1, run.said  # fmt: skip
    assert machine.boot_id() == boot
