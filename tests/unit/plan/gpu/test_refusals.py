"""What stops the installation of a driver, as `ktfleet plan --state` tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ktfleet import plan
from ktfleet.config import Workstation
from ktfleet.host.state import Boot, HostState
from ktfleet.plan.places import NVIDIA_UNINSTALL
from tests.unit.plan.gpu.hosts import CARD, RECIPE, host, made, nvidia
from tests.unit.test_cli import ktfleet

OPEN = "linux-modules-nvidia-580-server-open-generic=6.8.0-50.51"
KEYED = Boot(secure_boot=True, dkms_key_enrolled=True)
CASES: dict[str, tuple[HostState, str]] = {
    "an unknown keyring": (
        host("ubuntu", "26.04"),
        "the keyring of NVIDIA's repository cannot be proven: seen no known digest for ubuntu 26.04, wanted a pinned "
        "sha256; look at cuda-keyring in a repository that you trust, then set gpu.keyring_sha256",
    ),
    "no card": (
        host(displays=()),
        "the graphics card is missing: seen no NVIDIA card on the PCI bus, wanted one (sm_120); look at its seat and",
    ),
    "a toolkit that does not compile there": (
        host("debian", "13"),
        'the toolkit does not fit debian 13: seen 12.9, wanted 13.0 or newer; set gpu = {"toolkit": "13.0"}',
    ),
    "a runfile": (
        host(files={**host().files, NVIDIA_UNINSTALL: "a digest"}),
        f"a driver was installed with NVIDIA's runfile: seen {NVIDIA_UNINSTALL}, wanted packages only; "
        f"run `sudo {NVIDIA_UNINSTALL}` there",
    ),
    "a module of no package": (
        host(nvidia=nvidia("580.95.05", "580.95.05", "Dual MIT/GPL")),
        "a driver was installed with NVIDIA's runfile: seen a kernel module 580.95.05 that no package owns, wanted",
    ),
    "NVIDIA's driver beside Canonical's": (
        host(packages=("cuda-drivers=580.95.05-1", "nvidia-dkms-580-open=580.95.05-1")),
        "NVIDIA's own driver packages are installed: seen cuda-drivers 580.95.05-1, nvidia-dkms-580-open 580.95.05-1, "
        "wanted Canonical's signed modules alone; `sudo apt-get purge cuda-drivers nvidia-dkms-580-open`",
    ),
    "two versions installed": (
        host("debian", "12", ("nvidia-kernel-open-dkms=580.95.05-1", "nvidia-smi=535.247.01-1~deb12u1")),
        "the driver's packages are of different versions: seen nvidia-kernel-open-dkms 580.95.05-1, nvidia-smi "
        "535.247.01-1~deb12u1, wanted one version; `sudo apt-get purge` the ones",
    ),
    "the repository twice": (
        host(packages=("cuda-keyring=1.1-1",)),
        "NVIDIA's repository is already set up: seen cuda-keyring 1.1-1, wanted no package cuda-keyring; `sudo apt-get",
    ),
    "a proprietary module": (
        host(packages=("nvidia-kernel-common=1", "linux-modules-nvidia-580-server-generic=6"),
             nvidia=nvidia("580.95.05", "580.95.05", "NVIDIA")),
        "the proprietary NVIDIA module does not drive sm_120: seen licence NVIDIA on disk, wanted Dual MIT/GPL; `sudo "
        "apt-get purge linux-modules-nvidia-580-server-generic nvidia-kernel-common`",
    ),
    "Secure Boot without the key": (
        host("debian", "12", boot=Boot(secure_boot=True, dkms_key_enrolled=False)),
        "Secure Boot would not load the driver: seen a key that is not enrolled, wanted DKMS's key enrolled; install",
    ),
    "Secure Boot with an unread key": (
        host("debian", "12", boot=Boot(secure_boot=True)),
        "Secure Boot would not load the driver: seen an unknown key, wanted DKMS's key enrolled; install dkms",
    ),
    "an unknown distribution": (
        host("fedora", "44"),
        "unsupported distribution: seen fedora 44, wanted debian 12, 13; ubuntu 22.04, 24.04, 26.04; install one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_refusal_is_told_by_the_command_line(name: str, tmp_path: Path) -> None:
    state, line = CASES[name]
    file = tmp_path / "state.json"
    file.write_text(state.model_dump_json(by_alias=True))
    done = ktfleet("plan", "--state", file)
    assert done.returncode == 2
    assert " ".join(line.split()) in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", set(CASES) - {"an unknown distribution"})
def test_without_a_wanted_card_none_of_it_matters(name: str) -> None:
    assert plan.make(CASES[name][0], Workstation(gpu=None), RECIPE).refusals == ()


@pytest.mark.parametrize("state", [
    host(),
    host(boot=Boot(secure_boot=True, dkms_key_enrolled=False)),
    host("debian", "12", boot=KEYED),
    host("debian", "12", ("nvidia-kernel-open-dkms=580.95.05-1",), boot=Boot(secure_boot=True),
         nvidia=nvidia("580.95.05", "580.95.05", "Dual MIT/GPL")),
    host("debian", "12", ("nvidia-driver-cuda=580.95.05-1", "nvidia-kernel-common=20220217+3~deb12u1")),
    host(packages=(OPEN, "nvidia-utils-580-server=580.95.05-0ubuntu0.24.04.1", "nvidia-settings=510.47.03-0ubuntu4")),
    host(nvidia=nvidia(None, "580.95.05"), unreadable={"/var/lib/dpkg/status": "permission denied"}),
])  # fmt: skip
def test_what_is_fine_is_not_refused(state: HostState) -> None:
    assert made(state).refusals == ()


def test_a_digest_of_ones_own_proves_a_keyring() -> None:
    assert made(CASES["an unknown keyring"][0], keyring_sha256="a" * 64).refusals == ()


def test_an_older_card_may_have_the_proprietary_module() -> None:
    state = CASES["a proprietary module"][0]
    assert made(state, capability=(9, 0)).refusals == ()


@pytest.mark.parametrize(("card", "manager", "said"), [
    ({"driver": "nouveau"}, None, None),
    ({"driver": "nouveau"}, "gdm.service", "the card shows a picture: seen the desktop of gdm.service, wanted none;"),
    ({"driver": "nouveau", "monitors": ("DP-1",)}, None,
     "the card shows a picture: seen a monitor at DP-1 of 0000:3b:00.0, wanted none; nouveau is blacklisted"),
    ({"driver": "nvidia"}, "gdm.service", None),
    ({"vendor": "1a03", "driver": "ast", "monitors": ("VGA-1",)}, "gdm.service", None),
])  # fmt: skip
def test_a_picture_on_the_card_is_told_before_it_goes(
    card: dict[str, Any], manager: str | None, said: str | None
) -> None:
    state = HostState.model_validate({
        **host().model_dump(by_alias=True), "displays": [{**CARD, **card}], "display_manager": manager,
    })  # fmt: skip
    notes = made(state).notes
    assert (notes == ()) if said is None else (len(notes) == 1 and notes[0].startswith(said))


def test_a_distributions_own_nvcc_is_told() -> None:
    (note,) = made(host(packages=("nvidia-cuda-toolkit=11.8.89~11.8.0-5",))).notes
    assert "nvidia-cuda-toolkit 11.8.89" in note
