"""THE table of packages: what each distribution calls the driver, the toolkit and what they need, and why.

Every fact has its source. In names, {branch} is the driver's branch, {kernel} a flavour of the kernel's metapackage
and {toolkit} the toolkit's release with a hyphen. To support another distribution, add a row (and its version to
refusals.SUPPORTED); its apt files in tests/golden/gpu show what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

T_co = TypeVar("T_co", covariant=True)

KEYRING_DEB = "cuda-keyring_1.1-1_all.deb"
KEYRING_IN_DEB = "usr/share/keyrings/cuda-archive-keyring.gpg"


@dataclass(frozen=True)
class Fact(Generic[T_co]):
    """A value and where it was learnt."""

    value: T_co
    source: str


@dataclass(frozen=True)
class Distribution:
    """One row.

    folder: its part of NVIDIA's repository. keyring: the sha256 of its KEYRING_DEB; None: nobody has told it.
    modules: who builds the kernel modules, the distribution ("signed", by it, ready to load under Secure Boot) or
    the host itself ("dkms"). driver: what to install. kernels: flavours of the kernel's metapackages, the first is
    installed when none is there. headers: the metapackage that keeps the headers beside the kernel. compilers:
    flavour -> the kernel's compiler where it is not the default one (and not a dependency of the headers). build:
    a C and C++ compiler and the headers of the distribution's Python. pin: what NVIDIA's repository may give:
    everything but the driver ("toolkit"), or of the driver only the wanted branch ("branch"). oldest_toolkit: the
    first that knows the card and this distribution's C library. note: what a person should know.
    """

    folder: Fact[str]
    keyring: Fact[str | None]
    modules: Fact[Literal["signed", "dkms"]]
    driver: Fact[tuple[str, ...]]
    kernels: Fact[tuple[str, ...]]
    headers: Fact[str]
    compilers: Fact[dict[str, str]]
    build: Fact[tuple[str, ...]]
    toolkit: Fact[str]
    pin: Fact[Literal["toolkit", "branch"]]
    oldest_toolkit: Fact[str]
    note: str | None = field(default=None, kw_only=True)


_LISTING = "the folders of developer.download.nvidia.com/compute/cuda/repos"
_PINNED = "the digest that independent projects pin for this file, December 2026"
_CANONICAL = Fact[Literal["signed", "dkms"]](
    "signed", "Ubuntu Server documentation, NVIDIA drivers: linux-modules-nvidia-* are built and signed by Canonical"
)
_DKMS = Fact[Literal["signed", "dkms"]](
    "dkms", "NVIDIA Driver Installation Guide, Debian: the open modules come as DKMS sources only"
)
_UBUNTU_DRIVER = Fact(
    (
        "linux-modules-nvidia-{branch}-server-open-{kernel}",
        "nvidia-headless-no-dkms-{branch}-server-open",
        "nvidia-utils-{branch}-server",
    ),
    "Ubuntu's package index, restricted section: the server branch, open modules, without a desktop",
)
_DEBIAN_DRIVER = Fact(
    ("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"),
    "NVIDIA Driver Installation Guide, Debian, compute-only system with open modules (Debian's own are too old)",
)
_DEBIAN_KERNELS = Fact(("amd64", "cloud-amd64", "rt-amd64"), "Debian's package index, source linux-signed-amd64")
_HEADERS = Fact(
    "linux-headers-{kernel}", "the package indexes: the metapackage follows its kernel, headers of one release do not"
)
_BUILD = Fact(
    ("gcc", "g++", "python3-dev"),
    "CUDA Installation Guide (a host compiler); torch and triton compile extensions against Python.h",
)
_DEFAULT_COMPILER: Fact[dict[str, str]] = Fact(
    {}, "the package indexes: Debian's headers depend on the kernel's compiler, other kernels of Ubuntu use the default"
)
_TOOLKIT = Fact(
    "cuda-toolkit-{toolkit}", "CUDA Installation Guide, meta packages: the toolkit alone; `cuda` would bring a driver"
)
_NO_DRIVER = Fact[Literal["toolkit", "branch"]](
    "toolkit", "apt_preferences(5); NVIDIA's repository has newer drivers of the same names as Canonical's"
)
_ONE_BRANCH = Fact[Literal["toolkit", "branch"]](
    "branch", "apt_preferences(5); the repository holds all branches under the same names, the newest would win"
)
_KNOWS_THE_CARD = Fact("12.8", "CUDA 12.8 release notes: the first with compute_120")
_KNOWS_GLIBC_2_41 = Fact("13.0", "12.x headers declare cospi and others differently than glibc 2.41: nvcc fails")
_SECOND_TIER = "{} is second tier: no card of the fleet runs it yet"


def _ubuntu_kernels(version: str) -> Fact[tuple[str, ...]]:
    flavours = ("generic", f"generic-hwe-{version}", "lowlatency", f"lowlatency-hwe-{version}")
    return Fact(flavours, "Ubuntu's package index, sources linux-meta and linux-meta-hwe")


TABLE: dict[tuple[str, str], Distribution] = {
    ("ubuntu", "22.04"): Distribution(
        folder=Fact("ubuntu2204/x86_64", _LISTING),
        keyring=Fact("d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df", _PINNED),
        modules=_CANONICAL,
        driver=_UBUNTU_DRIVER,
        kernels=_ubuntu_kernels("22.04"),
        headers=_HEADERS,
        compilers=Fact(
            dict.fromkeys(("generic-hwe-22.04", "lowlatency-hwe-22.04"), "gcc-12"),
            "CONFIG_CC_VERSION_TEXT of 22.04's HWE kernels: gcc 12, while the default is 11",
        ),
        build=_BUILD,
        toolkit=_TOOLKIT,
        pin=_NO_DRIVER,
        oldest_toolkit=_KNOWS_THE_CARD,
    ),
    ("ubuntu", "24.04"): Distribution(
        folder=Fact("ubuntu2404/x86_64", _LISTING),
        keyring=Fact("d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba", _PINNED),
        modules=_CANONICAL,
        driver=_UBUNTU_DRIVER,
        kernels=_ubuntu_kernels("24.04"),
        headers=_HEADERS,
        compilers=_DEFAULT_COMPILER,
        build=_BUILD,
        toolkit=_TOOLKIT,
        pin=_NO_DRIVER,
        oldest_toolkit=_KNOWS_THE_CARD,
    ),
    ("ubuntu", "26.04"): Distribution(
        folder=Fact("ubuntu2604/x86_64", _LISTING),
        keyring=Fact(None, "no independent digest was found, December 2026"),
        modules=_CANONICAL,
        driver=_UBUNTU_DRIVER,
        kernels=_ubuntu_kernels("26.04"),
        headers=_HEADERS,
        compilers=_DEFAULT_COMPILER,
        build=_BUILD,
        toolkit=_TOOLKIT,
        pin=_NO_DRIVER,
        oldest_toolkit=_KNOWS_GLIBC_2_41,
        note=_SECOND_TIER.format("Ubuntu 26.04"),
    ),
    ("debian", "12"): Distribution(
        folder=Fact("debian12/x86_64", _LISTING),
        keyring=Fact("e7f219eab6fe4819cdb5c15b98233dc3420302d9c00883219cd3d896857cf48d", _PINNED),
        modules=_DKMS,
        driver=_DEBIAN_DRIVER,
        kernels=_DEBIAN_KERNELS,
        headers=_HEADERS,
        compilers=_DEFAULT_COMPILER,
        build=_BUILD,
        toolkit=_TOOLKIT,
        pin=_ONE_BRANCH,
        oldest_toolkit=_KNOWS_THE_CARD,
    ),
    ("debian", "13"): Distribution(
        folder=Fact("debian13/x86_64", f"{_LISTING}; its key is another one: apt 3 rejects the older key's signature"),
        keyring=Fact("dd28f1f6ba0038180d6b23f846cefca1e3de4c9327751665241370bacea452a1", _PINNED),
        modules=_DKMS,
        driver=_DEBIAN_DRIVER,
        kernels=_DEBIAN_KERNELS,
        headers=_HEADERS,
        compilers=_DEFAULT_COMPILER,
        build=_BUILD,
        toolkit=_TOOLKIT,
        pin=_ONE_BRANCH,
        oldest_toolkit=_KNOWS_GLIBC_2_41,
        note=_SECOND_TIER.format("Debian 13"),
    ),
}

DRIVER_PATTERNS = ("nvidia-*", "libnvidia-*", "linux-modules-nvidia-*", "cuda-*")
"""Packages of the driver, and NVIDIA's."""


def keyring_path(sha256: str) -> str:
    """Where our copy of a repository's key lies: another KEYRING_DEB is another file."""
    return f"/etc/apt/keyrings/ktfleet-nvidia-{sha256[:12]}.gpg"


KEYRINGS = tuple(keyring_path(row.keyring.value) for row in TABLE.values() if row.keyring.value)


def patterns() -> tuple[str, ...]:
    """Names of packages whose versions a plan looks at, beyond DRIVER_PATTERNS."""
    rows = TABLE.values()
    kernels = {kernel for row in rows for kernel in row.kernels.value}
    build = {name for row in rows for name in (*row.build.value, *row.compilers.value.values())}
    headers = {row.headers.value.format(kernel=kernel) for row in rows for kernel in row.kernels.value}
    return tuple(sorted({f"linux-image-{kernel}" for kernel in kernels} | headers | build))
