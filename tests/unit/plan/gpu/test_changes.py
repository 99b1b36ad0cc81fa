"""The commands for a card: which, in which order, and what they really do when a shell runs them."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.host.state import Boot, HostState, Nvidia
from ktfleet.plan import Plan, files, places, reboot
from ktfleet.plan.gpu import changes
from ktfleet.plan.gpu.changes import APT_HELPER
from ktfleet.plan.gpu.packages import TABLE, Fact
from tests.states import converged, workstation
from tests.unit.plan.gpu.hosts import CARD, host, made, nvidia

EVERY = (
    *(changes.fetch_keyring, changes.add_repository, changes.install, changes.blacklist, changes.load),
    *(changes.persist, changes.limit_power, changes.prove_module),
)
PLAN = made(host())
DONE = converged(PLAN).model_copy(update={"os": host().os})


def shell(command: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder}:/usr/bin:/bin" if folder else "/usr/bin:/bin"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, env={"PATH": path, **environment})


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


# Which


@pytest.mark.parametrize("key", [key for key in TABLE if key != ("ubuntu", "26.04")])
def test_a_converged_host_of_each_distribution_gets_no_command(key: tuple[str, str]) -> None:
    plan = made(host(*key), power_limit_w=450)
    state = converged(plan)
    assert [change(plan, state) for change in EVERY] == [()] * len(EVERY)
    assert reboot.reasons(plan, state) == ()


def test_only_what_is_missing_is_installed_the_kernel_always_with_its_driver() -> None:
    def without(*gone: str) -> tuple[str, ...]:
        there = {name: version for name, version in DONE.packages.installed.items() if name not in gone}
        packages = DONE.packages.model_copy(update={"installed": there})
        assert PLAN.driver is not None
        return changes.missing(PLAN.driver, DONE.model_copy(update={"packages": packages}))

    assert PLAN.driver is not None
    assert without("g++") == ("g++",)
    assert without("cuda-toolkit-12-9") == ("cuda-toolkit-12-9",)
    assert without("nvidia-utils-580-server") == PLAN.driver.driver
    assert "linux-image-generic" in PLAN.driver.driver


@pytest.mark.parametrize(("version", "upgraded"), [
    ("580.65.06-0ubuntu0.24.04.1", False), ("580.95.05-1", False), ("595.1-1", False),
    ("580.65.05-0ubuntu1", True), ("575.99-1", True), ("not a version", False),
])  # fmt: skip
def test_the_driver_is_upgraded_below_the_minimum_only(version: str, upgraded: bool) -> None:
    there = {**DONE.packages.installed, "nvidia-utils-580-server": version}
    state = DONE.model_copy(update={"packages": DONE.packages.model_copy(update={"installed": there})})
    assert PLAN.driver is not None
    assert changes.missing(PLAN.driver, state) == (PLAN.driver.driver if upgraded else ())


def test_between_two_versions_nothing_of_the_driver_is_reinstalled_but_a_reboot_is_due() -> None:
    state = DONE.model_copy(update={"nvidia": nvidia("580.65.06", "580.95.05"), "packages": host().packages})
    assert PLAN.driver is not None
    assert changes.missing(PLAN.driver, state) == (*PLAN.driver.build, PLAN.driver.toolkit)
    assert reboot.reasons(PLAN, state) == ("the NVIDIA module: loaded 580.65.06, on disk 580.95.05",)


def bound(driver: str, blacklisted: bool, **update: Any) -> HostState:
    displays = HostState.model_validate({"schema": 1, "displays": [{**CARD, "driver": driver}]}).displays
    placed = DONE.files if blacklisted else {**DONE.files, places.NOUVEAU_BLACKLIST: None}
    return DONE.model_copy(update={"displays": displays, "files": placed, "nvidia": Nvidia(), **update})


@pytest.mark.parametrize(("driver", "blacklisted", "reboots"), [
    ("nouveau", True, True), ("nova_core", True, True), ("nouveau", False, False), ("vfio-pci", True, False),
])  # fmt: skip
def test_a_stand_in_that_holds_the_card_needs_a_reboot(driver: str, blacklisted: bool, reboots: bool) -> None:
    state = bound(driver, blacklisted)
    wanted = (f"the card's driver: running {driver}, next boot nvidia",) if reboots else ()
    assert reboot.reasons(PLAN, state) == wanted
    assert (changes.load(PLAN, state) == ()) == (driver == "nouveau" or reboots)
    assert (changes.prove_module(PLAN, state) != ()) == reboots


def test_a_module_for_the_next_kernel_only_needs_a_reboot() -> None:
    boot = DONE.boot.model_copy(update={"next_kernel": "6.1.1"})
    state = DONE.model_copy(update={"nvidia": Nvidia(), "boot": boot})
    assert reboot.reasons(PLAN, state) == ("the NVIDIA module: none for 6.1.0, next boot 6.1.1",)
    assert changes.load(PLAN, state) == ()
    fresh = state.model_copy(update={"packages": host().packages})
    assert reboot.reasons(PLAN, fresh) == (), "not installed yet"


def test_a_module_that_is_only_not_loaded_needs_none() -> None:
    state = DONE.model_copy(update={"nvidia": nvidia(None, "580.95.05")})
    assert reboot.reasons(PLAN, state) == ()
    assert changes.load(PLAN, state)[0].startswith("modprobe nvidia || ")


def test_a_power_limit_that_is_taken_back_goes() -> None:
    limited = made(host(), power_limit_w=450)
    state = converged(limited)
    removed = changes.limit_power(PLAN, state)
    assert removed == (f"rm -f {places.POWER_LIMIT_ENABLED}", f"rm -f {places.POWER_LIMIT}", "systemctl daemon-reload")
    assert changes.limit_power(limited, DONE)[-1].endswith("systemctl restart ktfleet-gpu-power.service; fi")


def test_apt_never_asks_and_waits_for_its_turn() -> None:
    update, simulate, install = changes.install(PLAN, host())
    assert "--simulate install --no-install-recommends linux-image-generic" in simulate
    assert install.startswith("DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -qq ")
    for command in (update, install):
        assert "-o DPkg::Lock::Timeout=600" in command
    assert "--no-remove" in install


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)


@given(
    key=st.sampled_from(sorted(TABLE)),
    there=st.dictionaries(st.sampled_from(["nvidia-smi", "gcc", "linux-image-generic"]), TEXTS),
    versions=st.tuples(*[st.none() | TEXTS] * 3),
    kernels=st.tuples(st.none() | TEXTS, st.none() | TEXTS),
    driver=st.none() | st.sampled_from(["nouveau", "nova_core", "nvidia"]) | TEXTS,
    placed=st.booleans(),
)  # fmt: skip
def test_any_state_gives_commands_that_a_shell_can_read(
    key: tuple[str, str],
    there: dict[str, str],
    versions: tuple[str | None, str | None, str | None],
    kernels: tuple[str | None, str | None],
    driver: str | None,
    placed: bool,
) -> None:
    state = workstation(cores=1)
    state = state.model_copy(
        update={
            "os": host(*key).os,
            "packages": state.packages.model_copy(update={"installed": there}),
            "nvidia": nvidia(*versions),
            "kernel": state.kernel.model_copy(update={"release": kernels[0]}),
            "boot": Boot(loader="grub", next_cmdline="", next_kernel=kernels[1]),
            "displays": HostState.model_validate({"schema": 1, "displays": [{**CARD, "driver": driver}]}).displays,
        }
    )
    plan = made(state, power_limit_w=300)
    if placed:
        state = state.model_copy(update={"files": {path: files.render(plan, path).sha256 for path in files.paths()}})
    commands = [command for change in EVERY for command in change(plan, state)]
    read = subprocess.run(["sh", "-n"], input="\n".join(commands).encode(), capture_output=True)
    assert (read.returncode, read.stderr) == (0, b"")
    for command in changes.prove_module(plan, state):
        assert shlex.quote(kernels[1] or kernels[0] or "") in command


# What they do


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as NVIDIA's, and a downloader that copies it. The key's place is below tmp_path too."""
    package = tmp_path / "package"
    key = package / "usr/share/keyrings/cuda-archive-keyring.gpg"
    key.parent.mkdir(parents=True)
    key.write_bytes(b"\x99\x01the key")
    (package / "etc/apt/sources.list.d").mkdir(parents=True)
    (package / "etc/apt/sources.list.d/cuda.list").write_text("deb https://elsewhere /\n")
    (package / "DEBIAN").mkdir()
    (package / "DEBIAN/control").write_text(
        "Package: cuda-keyring\nVersion: 1.1-1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
    )
    deb = tmp_path / "cuda-keyring_1.1-1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", package, deb], check=True, capture_output=True)
    helper = f'for last; do :; done; echo "E: no route" ; cp {deb} "$last" 2>/dev/null'
    program(tmp_path / "bin", "apt-helper", helper)
    monkeypatch.setattr(changes, "APT_HELPER", str(tmp_path / "bin/apt-helper"))
    monkeypatch.setattr("ktfleet.plan.gpu.wanted.keyring_path", lambda _: f"{tmp_path}/keys/ktfleet-it's.gpg")
    return deb


def pinned(digest: str) -> Plan:
    assert PLAN.driver is not None
    row = replace(PLAN.driver.row, keyring=Fact(digest, "this test"))
    return replace(PLAN, driver=replace(PLAN.driver, row=row))


def fetch(plan: Plan, folder: Path) -> subprocess.CompletedProcess[str]:
    (command,) = changes.fetch_keyring(plan, host())
    (folder / "tmp").mkdir(exist_ok=True)
    done = shell(command, TMPDIR=str(folder / "tmp"))
    assert list((folder / "tmp").iterdir()) == [], "nothing temporary is left"
    return done


def test_only_the_key_is_taken_out_of_the_package(keyring: Path, tmp_path: Path) -> None:
    done = fetch(pinned(hashlib.sha256(keyring.read_bytes()).hexdigest()), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (placed,) = (tmp_path / "keys").iterdir()
    assert (placed.name, placed.read_bytes()) == ("ktfleet-it's.gpg", b"\x99\x01the key")
    assert placed.stat().st_mode & 0o777 == 0o644


def test_another_package_is_refused_and_leaves_nothing(keyring: Path, tmp_path: Path) -> None:
    done = fetch(pinned("0" * 64), tmp_path)
    seen = hashlib.sha256(keyring.read_bytes()).hexdigest()
    assert done.returncode == 1
    assert done.stderr.startswith(f"the keyring of NVIDIA's repository: seen {seen}, wanted {'0' * 64}; compare http")
    assert not (tmp_path / "keys").exists()


def test_a_package_that_cannot_be_had_is_said_with_its_address(keyring: Path, tmp_path: Path) -> None:
    keyring.unlink()
    done = fetch(PLAN, tmp_path)
    assert done.returncode == 1
    url = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb"
    first, line = done.stderr.splitlines()
    assert first == "E: no route"
    assert line.startswith(f"the keyring of NVIDIA's repository: seen no file at {url}, wanted it; ")
    assert not (tmp_path / "keys").exists()


def test_a_package_without_the_key_is_refused(keyring: Path, tmp_path: Path) -> None:
    keyring.write_text("no package at all")
    done = fetch(pinned(hashlib.sha256(keyring.read_bytes()).hexdigest()), tmp_path)
    assert done.returncode == 1
    assert "seen no usr/share/keyrings/cuda-archive-keyring.gpg in it" in done.stderr
    assert not (tmp_path / "keys").exists()


@pytest.mark.skipif(not Path(APT_HELPER).exists(), reason="no apt here")
@pytest.mark.parametrize("there", [True, False])
def test_apt_itself_gets_the_package(
    keyring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr(changes, "APT_HELPER", APT_HELPER)
    plan = pinned(hashlib.sha256(keyring.read_bytes()).hexdigest())
    assert plan.driver is not None
    place = tmp_path / "www" / plan.driver.row.folder.value
    place.mkdir(parents=True)
    if there:
        (place / keyring.name).write_bytes(keyring.read_bytes())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www"))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        mirror = plan.driver.wanted.model_copy(update={"repository": f"http://127.0.0.1:{server.server_port}"})
        done = fetch(replace(plan, driver=replace(plan.driver, wanted=mirror)), tmp_path)
        server.shutdown()
    assert (done.returncode == 0, (tmp_path / "keys/ktfleet-it's.gpg").exists()) == (there, there), done.stderr
    assert ("404" in done.stderr.splitlines()[0]) if not there else (done.stderr == "")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def simulated(folder: Path, said: str, status: int) -> subprocess.CompletedProcess[str]:
    said = said.replace("'", "'\\''")
    program(folder, "apt-get", f"echo \"$*\" >>{folder}/calls; printf '%s\\n' '{said}'; exit {status}")
    return shell(changes.install(PLAN, host())[1], folder)


def test_every_missing_name_is_told_at_once(tmp_path: Path) -> None:
    said = (
        "Reading package lists...\nE: Unable to locate package nvidia-utils-580-server\n"
        "E: Package 'cuda-toolkit-12-9' has no installation candidate\nE: Unable to locate package g++"
    )
    done = simulated(tmp_path / "bin", said, 100)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "packages are not in the repositories: seen cuda-toolkit-12-9 g++ nvidia-utils-580-server, wanted all of them "
        "there; look for them in https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 and the "
        "distribution's sources, or correct gpu.driver_branch and gpu.toolkit\n"
    )
    (call,) = (tmp_path / "bin/calls").read_text().splitlines()
    assert call.startswith("--simulate install ")


def test_nothing_of_the_owners_is_removed(tmp_path: Path) -> None:
    done = simulated(tmp_path / "bin", "Remv nvidia-driver-570 [570.1]\nRemv xorg [1]\nInst gcc (1)", 0)
    assert done.returncode == 1
    assert done.stderr.startswith("the installation would remove packages: seen nvidia-driver-570 xorg, wanted none;")


def test_another_error_of_apt_is_told_with_its_messages(tmp_path: Path) -> None:
    done = simulated(tmp_path / "bin", "gcc : Depends: $HOME `id`\nE: Unable to correct problems, you have held", 100)
    assert done.returncode == 1
    assert "Depends: $HOME `id`" in done.stderr
    assert "seen E: Unable to correct problems, you have held, wanted a solution" in done.stderr


def test_debian_is_told_about_contrib() -> None:
    debian = host("debian", "12")
    assert "contrib" in changes.install(made(debian), debian)[1]
    assert "contrib" not in changes.install(PLAN, host())[1]


def test_a_possible_installation_goes_on(tmp_path: Path) -> None:
    done = simulated(tmp_path / "bin", "Inst gcc (4:13.2 Ubuntu:24.04/noble [amd64])\nConf gcc", 0)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("broken", "line"), [
    ("Error-Mode", "NVIDIA's repository cannot be read: seen the messages above, wanted https://developer.download."),
    ("Timeout=600 -o Acquire::Retries=3 update", "the package lists cannot be read: seen the messages above, wanted"),
])  # fmt: skip
def test_a_repository_that_cannot_be_read_is_named(tmp_path: Path, broken: str, line: str) -> None:
    program(tmp_path / "bin", "apt-get", f'case "$*" in *"{broken}"*) echo "E: no route" >&2; exit 100;; esac')
    done = shell(changes.install(PLAN, host())[0], tmp_path / "bin")
    assert done.returncode == 1
    first, said = done.stderr.splitlines()
    assert first == "E: no route"
    assert said.startswith(line)


@pytest.mark.parametrize("status", [0, 1])
def test_a_blacklist_without_its_initramfs_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    target = tmp_path / "modprobe.d" / "file.conf"
    monkeypatch.setattr(changes, "NOUVEAU_BLACKLIST", str(target))
    monkeypatch.setattr(
        "ktfleet.plan.changes.render",
        lambda plan, path: replace(files.render(plan, places.NOUVEAU_BLACKLIST), path=path),
    )
    program(tmp_path / "bin", "update-initramfs", f'echo "$*" >{tmp_path}/called; exit {status}')
    (command,) = changes.blacklist(PLAN, host())
    done = shell(command, tmp_path / "bin")
    assert (done.returncode, target.exists()) == (status, status == 0)
    assert (tmp_path / "called").read_text() == "-u -k all\n"
    assert ("update-initramfs failed: seen" in done.stderr) == (status == 1)


@pytest.mark.parametrize(("module", "fine"), [("nvidia", True), ("nvidia-current", True), ("nothing", False)])
def test_the_next_kernel_must_have_the_module(tmp_path: Path, module: str, fine: bool) -> None:
    boot = DONE.boot.model_copy(update={"next_kernel": "6.1.0-29-amd64"})
    (command,) = changes.prove_module(PLAN, bound("nouveau", True, boot=boot))
    program(tmp_path / "bin", "modinfo", f'[ "$*" = "-k 6.1.0-29-amd64 {module}" ]')
    program(tmp_path / "bin", "dkms", 'echo "nvidia/580.95.05, 6.1.0-28-amd64, x86_64: installed"')
    done = shell(command, tmp_path / "bin")
    assert done.returncode == (0 if fine else 1)
    assert done.stderr == ("" if fine else (
        "the kernel that boots next has no NVIDIA module: seen nvidia/580.95.05, 6.1.0-28-amd64, x86_64: installed, "
        "wanted one for 6.1.0-29-amd64; install its headers and run `dkms autoinstall -k 6.1.0-29-amd64`, or boot "
        "another kernel; nothing was rebooted\n"
    ))  # fmt: skip
