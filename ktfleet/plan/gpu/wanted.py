"""What is to be installed on one host for its card: a row of the table with this host's names filled in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ktfleet.config import Gpu, Workstation
from ktfleet.host.state import Display, HostState
from ktfleet.plan.gpu.packages import KEYRING_DEB, TABLE, Distribution, keyring_path

NVIDIA_VENDOR = "10de"
STAND_IN_DRIVERS = ("nouveau", "nova_core", "NovaCore")
"""Linux' own drivers of the card, as modules and as the PCI bus names them."""

_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d{1,3}){1,2})(?![\d.])")


@dataclass(frozen=True)
class Pin:
    """One stanza of apt_preferences(5)."""

    packages: str
    pin: str
    priority: int


@dataclass(frozen=True)
class Installation:
    """Names for one host. `driver` begins with the kernel's metapackages: they are only ever upgraded together."""

    row: Distribution
    wanted: Gpu
    driver: tuple[str, ...]
    build: tuple[str, ...]
    toolkit: str
    notes: tuple[str, ...]

    @property
    def packages(self) -> tuple[str, ...]:
        """All that has to be there."""
        return (*self.driver, *self.build, self.toolkit)

    @property
    def url(self) -> str:
        """NVIDIA's repository for this distribution, without a slash at the end."""
        return f"{self.wanted.repository}/{self.row.folder.value}"

    @property
    def keyring_url(self) -> str:
        """The package that holds its key."""
        return f"{self.url}/{KEYRING_DEB}"

    @property
    def keyring_sha256(self) -> str:
        """Of that package; "" where it is not known, which is a refusal."""
        return self.wanted.keyring_sha256 or self.row.keyring.value or ""

    @property
    def keyring(self) -> str:
        """Our copy of the key."""
        return keyring_path(self.keyring_sha256)

    @property
    def pins(self) -> tuple[Pin, ...]:
        """What apt must not take from where."""
        driver = "nvidia-* libnvidia-* cuda-drivers* xserver-xorg-video-nvidia*"
        if self.row.pin.value == "toolkit":
            return (Pin(driver, "release o=NVIDIA", -1),)
        more = f"{driver} libcuda1* libcudadebugger1 libnvcuvid1 firmware-nvidia-*"
        return (Pin(more, f"version {self.wanted.driver_branch}.*", 990),)


def installation(state: HostState, config: Workstation) -> Installation | None:
    """None: no card is wanted, or the distribution is unknown (a refusal)."""
    row = TABLE.get((state.os.id or "", state.os.version_id or ""))
    if config.gpu is None or row is None:
        return None
    kernels = installed_kernels(row, state)
    branch, toolkit = config.gpu.driver_branch, config.gpu.toolkit.replace(".", "-")
    driver = [f"linux-image-{kernel}" for kernel in kernels]
    driver += [row.headers.value.format(kernel=kernel) for kernel in kernels]
    for name in row.driver.value:
        driver += [name.format(branch=branch, kernel=kernel) for kernel in kernels]
    compilers = [row.compilers.value[kernel] for kernel in kernels if kernel in row.compilers.value]
    return Installation(
        row=row,
        wanted=config.gpu,
        driver=tuple(dict.fromkeys(driver)),
        build=tuple(dict.fromkeys((*row.build.value, *compilers))),
        toolkit=row.toolkit.value.format(toolkit=toolkit),
        notes=_notes(row, state),
    )


def installed_kernels(row: Distribution, state: HostState) -> tuple[str, ...]:
    """The flavours whose metapackage is there: any of them may be what boots next. None: the usual one."""
    there = [kernel for kernel in row.kernels.value if f"linux-image-{kernel}" in state.packages.installed]
    return tuple(there) or row.kernels.value[:1]


def cards(state: HostState) -> tuple[Display, ...]:
    """NVIDIA's display devices."""
    return tuple(display for display in state.displays or () if display.vendor == NVIDIA_VENDOR)


def stand_ins(state: HostState) -> tuple[str, ...]:
    """Which of Linux' own drivers hold a card of NVIDIA's now."""
    return tuple(sorted({card.driver for card in cards(state) if card.driver in STAND_IN_DRIVERS}))


def upstream(version: str) -> str | None:
    """NVIDIA's version in a package's: "1:580.95.05-0ubuntu1" is 580.95.05. None: another numbering."""
    match = _UPSTREAM.match(version)
    return match[1] if match else None


def older(version: str, than: str) -> bool:
    """Whether one of NVIDIA's versions comes before another."""
    return [int(part) for part in version.split(".")] < [int(part) for part in than.split(".")]


def _notes(row: Distribution, state: HostState) -> tuple[str, ...]:
    notes = [row.note] if row.note else []
    shown = [f"{monitor} of {card.address}" for card in cards(state) for monitor in card.monitors]
    # What shows a picture now goes dark with nouveau; say it before that happens.
    if shown or (state.display_manager and stand_ins(state)):
        seen = [f"a monitor at {', '.join(shown)}"] if shown else []
        seen += [f"the desktop of {state.display_manager}"] if state.display_manager else []
        notes.append(
            f"the card shows a picture: seen {' and '.join(seen)}, wanted none; nouveau is blacklisted, so that "
            "picture ends at the next boot: use the board's own graphics, or ssh"
        )
    if "nvidia-cuda-toolkit" in state.packages.installed:
        notes.append(
            "the distribution's own nvcc is installed: seen nvidia-cuda-toolkit "
            f"{state.packages.installed['nvidia-cuda-toolkit']}, wanted none; it does not know the card: "
            "`sudo apt-get purge nvidia-cuda-toolkit`"
        )
    return tuple(notes)
