"""Why the driver is not installed on a host as it is. Nothing here is repaired: each needs a person's decision."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.gpu.wanted import Installation, cards, installation, upstream
from ktfleet.plan.places import DPKG_STATUS, NVIDIA_UNINSTALL
from ktfleet.problem import Problem

OPEN_LICENCE = "Dual MIT/GPL"
BLACKWELL = (10, 0)
"""The first compute capability whose cards the proprietary module does not drive."""

_MODULE_PACKAGES = (
    "nvidia-kernel-*",
    "nvidia-dkms-*",
    "nvidia-open*",
    "linux-modules-nvidia-*",
    "linux-objects-nvidia-*",
)
_ONE_VERSION = ("libnvidia-compute*", "nvidia-utils-*", "nvidia-compute-utils-*", "nvidia-kernel-*", "nvidia-driver-*",
                "nvidia-dkms-*", "nvidia-smi", "nvidia-persistenced", "libnvidia-ml1", "nvidia-headless-*")  # fmt: skip
"""Packages that only work together in one version."""

_NOT_CANONICALS = ("cuda-drivers*", "nvidia-open", "nvidia-open-[0-9]*", "nvidia-driver-cuda", "nvidia-dkms-*",
                   "nvidia-driver-pinning-*", "nvidia-kernel-open-dkms")  # fmt: skip
"""Names of NVIDIA's repository, and what builds a second module beside Canonical's signed one."""


def problems(state: HostState, config: Workstation) -> tuple[Problem, ...]:
    """Everything that is wrong, in the order a person would fix it. Without a card wanted: nothing."""
    made = installation(state, config)
    if made is None:
        return ()
    return (
        *_no_card(made, state),
        *_unknown_keyring(made, state),
        *_toolkit(made, state),
        *_runfile(state),
        *_mixed(made, state),
        *_own_source(state),
        *_proprietary(made, state),
        *_secure_boot(made, state),
    )


def _no_card(made: Installation, state: HostState) -> Iterator[Problem]:
    """Better said now than after hours of downloads."""
    if state.displays is not None and not cards(state):
        do = "look at its seat and power cables, and in the BIOS at Above 4G decoding; or set gpu = None"
        yield Problem("the graphics card is missing", "no NVIDIA card on the PCI bus", f"one ({made.wanted.sm})", do)


def _unknown_keyring(made: Installation, state: HostState) -> Iterator[Problem]:
    if not made.keyring_sha256:
        seen = f"no known digest for {state.os.id} {state.os.version_id}"
        do = (
            "look at cuda-keyring in a repository that you trust, then set gpu.keyring_sha256; or install a release "
            "that the table of packages has a digest for"
        )
        yield Problem("the keyring of NVIDIA's repository cannot be proven", seen, "a pinned sha256", do)


def _toolkit(made: Installation, state: HostState) -> Iterator[Problem]:
    oldest = made.row.oldest_toolkit
    if _number(made.wanted.toolkit) < _number(oldest.value):
        what = f"the toolkit does not fit {state.os.id} {state.os.version_id}"
        do = f'set gpu = {{"toolkit": "{oldest.value}"}} ({oldest.source})'
        yield Problem(what, made.wanted.toolkit, f"{oldest.value} or newer", do)


def _number(toolkit: str) -> tuple[int, ...]:
    return tuple(int(part) for part in toolkit.split("."))


def _runfile(state: HostState) -> Iterator[Problem]:
    """NVIDIA's own installer writes over files of packages, and packages over its."""
    unowned = (
        state.nvidia.on_disk is not None
        and DPKG_STATUS not in state.unreadable
        and not _installed(state, _MODULE_PACKAGES)
    )
    if state.files.get(NVIDIA_UNINSTALL) is not None:
        seen = NVIDIA_UNINSTALL
    elif unowned:
        seen = f"a kernel module {state.nvidia.on_disk} that no package owns"
    else:
        return
    do = f"run `sudo {NVIDIA_UNINSTALL}` there, reboot, then run deploy.py again"
    yield Problem("a driver was installed with NVIDIA's runfile", seen, "packages only", do)


def _mixed(made: Installation, state: HostState) -> Iterator[Problem]:
    """Two repositories, or an upgrade that took only half: kernel and user space would not talk to each other."""
    foreign = _installed(state, _NOT_CANONICALS) if made.row.modules.value == "signed" else {}
    if foreign:
        seen = _listed(foreign)
        do = f"`sudo apt-get purge {' '.join(foreign)}`, then run deploy.py again"
        yield Problem("NVIDIA's own driver packages are installed", seen, "Canonical's signed modules alone", do)
    core = {name: version for name, version in _installed(state, _ONE_VERSION).items() if upstream(version)}
    versions = {upstream(version) for version in core.values()}
    if len(versions) > 1:
        do = "`sudo apt-get purge` the ones of the wrong version (`apt-cache policy` shows their repositories)"
        yield Problem("the driver's packages are of different versions", _listed(core), "one version", do)


def _own_source(state: HostState) -> Iterator[Problem]:
    """The same repository with two keys is an error of apt that stops every apt-get."""
    found = _installed(state, ("cuda-keyring",))
    if found:
        do = "`sudo apt-get purge cuda-keyring`: ktfleet keeps a source and a pinned key of its own"
        yield Problem("NVIDIA's repository is already set up", _listed(found), "no package cuda-keyring", do)


def _proprietary(made: Installation, state: HostState) -> Iterator[Problem]:
    licence = state.nvidia.license
    if licence is not None and licence != OPEN_LICENCE and made.wanted.capability >= BLACKWELL:
        owners = [name for name in _installed(state, _MODULE_PACKAGES) if "open" not in name]
        do = f"`sudo apt-get purge {' '.join(owners) or 'the packages of that module'}`, then run deploy.py again"
        what = f"the proprietary NVIDIA module does not drive {made.wanted.sm}"
        yield Problem(what, f"licence {licence} on disk", OPEN_LICENCE, do)


def _secure_boot(made: Installation, state: HostState) -> Iterator[Problem]:
    """A module that the host builds is signed with the host's key. One that is loaded has passed."""
    boot = state.boot
    if made.row.modules.value != "dkms" or not boot.secure_boot or boot.dkms_key_enrolled or state.nvidia.loaded:
        return
    seen = "an unknown key" if boot.dkms_key_enrolled is None else "a key that is not enrolled"
    do = (
        "install dkms there, run `sudo dkms generate_mok` and `sudo mokutil --import /var/lib/dkms/mok.pub`, reboot "
        "and enrol it at the console (it asks there for the password), or switch Secure Boot off in the BIOS"
    )
    yield Problem("Secure Boot would not load the driver", seen, "DKMS's key enrolled", do)


def _installed(state: HostState, patterns: tuple[str, ...]) -> dict[str, str]:
    return {
        name: version
        for name, version in sorted(state.packages.installed.items())
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _listed(found: dict[str, str]) -> str:
    names = [f"{name} {version}" for name, version in found.items()]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
