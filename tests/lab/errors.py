"""Errors of the lab that a person can act on, in the project's grammar."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "apt-config": "apt",
    "dpkg-deb": "dpkg",
    "gpg": "gnupg",
    "gpgconf": "gnupg",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
"""What the lab needs from outside, and the Debian package that brings it."""


class LabError(Exception):
    """Something about the lab that is wrong, said as `what: seen X, wanted Y; do Z`."""

    def __init__(self, what: str, *, seen: str, wanted: str, do: str) -> None:
        super().__init__(f"{what}: seen {seen}, wanted {wanted}; {do}")


def require_programs(needs: Iterable[str] = tuple(PACKAGES)) -> None:
    """Refuse once for everything of `needs` (keys of PACKAGES) that is not installed."""
    missing = [need for need in needs if not _present(need)]
    if missing:
        packages = " ".join(sorted({PACKAGES[need] for need in missing}))
        raise LabError(
            "programs are missing",
            seen="no " + ", no ".join(missing),
            wanted="all of them",
            do=f"run: sudo apt-get install {packages}",
        )


def require_space(folder: Path, mib: int, purpose: str) -> None:
    """Refuse when the disk below `folder` has less than `mib` MiB left for `purpose`."""
    free = shutil.disk_usage(folder).free >> 20
    if free < mib:
        raise LabError(
            f"the disk is too full for {purpose}",
            seen=f"{free} MiB free in {folder}",
            wanted=f"{mib} MiB",
            do="free some space or choose another disk (KTFLEET_LAB_CACHE holds the images, TMPDIR the build)",
        )


def _present(need: str) -> bool:
    # /usr/sbin is not on every user's PATH, and mkfs.ext4 lives there.
    return Path(need).exists() or any(shutil.which(need, path=path) for path in (None, "/usr/sbin:/sbin"))
