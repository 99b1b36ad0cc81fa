"""The disk of a freshly installed Debian, built once and kept in a cache.

The cache is `$KTFLEET_LAB_CACHE`, or `ktfleet/lab` below the user's cache folder. An image is a folder whose name
ends in the digest of all that made it, so a changed package list or hook never meets an old image.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.errors import LabError, require_programs, require_space
from tests.lab.progress import Progress, Stopwatch, silent

GUEST = Path(__file__).with_name("guest")
USER = "ops"
PACKAGES = (
    *("bubblewrap", "dbus", "git", "grub-pc", "haproxy", "initramfs-tools", "iproute2", "irqbalance", "kmod"),
    *("linux-image-amd64", "lz4", "openssh-server", "procps", "python3", "sudo", "systemd-sysv"),
    *("systemd-timesyncd", "udev", "zstd"),
)
HARDWARE = (  # that qemu does not have, below the kernel's drivers/
    *("ata", "gpu", "hwmon", "iio", "infiniband", "isdn", "media", "mtd", "net/ethernet", "net/wireless"),
    *("scsi", "staging", "usb"),
)
# Not unpacked, for time and space. From Debian 13 on the modules are in /usr/lib, before in /lib.
LEFT_OUT = (
    *(f"/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
    *(f"*/lib/modules/*/kernel/net/{name}/*" for name in ("bluetooth", "mac80211", "rfkill", "wireless")),
    *(f"*/lib/modules/*/kernel/drivers/{name}/*" for name in HARDWARE),
    "*/lib/modules/*/kernel/sound/*",
    # The initramfs names its few modules: udev has nothing to find there and takes eight seconds for it.
    *(f"/usr/share/initramfs-tools/{name}/udev" for name in ("hooks", "scripts/init-bottom", "scripts/init-top")),
)
DISK_MIB = 20480  # sparse; room for a toolkit, as a deploy asks for it
FIRST_SECTOR = 2048  # 1 MiB before the partition: room for GRUB
SECTOR = 512
PACKAGES_SECONDS, FINISH_SECONDS, FINISH_LIMIT = 80, 40, 600
SCRATCH_MIB, CACHE_MIB = 1500, 1000


@dataclass(frozen=True, slots=True)
class Image:
    """A finished image in the cache; machines put an overlay on `disk` and never write to it."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The qcow2 disk."""
        return self.folder / "disk.qcow2"

    @property
    def key(self) -> Path:
        """The private ssh key of the user `ops`."""
        return self.folder / "id_ed25519"

    @property
    def host_key(self) -> str:
        """The machine's public host key, as a known_hosts line has it after the host."""
        return (self.folder / "ssh_host_ed25519_key.pub").read_text().strip()


def cache_folder() -> Path:
    """Where images are kept."""
    if chosen := os.environ.get("KTFLEET_LAB_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ktfleet" / "lab"


def image(suite: str = "bookworm", progress: Progress = silent) -> Image:
    """The image of a Debian suite, built first (some two minutes) when the cache has none."""
    folder = cache_folder() / f"{suite}-{_digest(suite)[:16]}"
    if not folder.exists():
        require_programs()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_suffix(".lock"), progress):
            if not folder.exists():
                _build(suite, folder, progress)
    return Image(folder)


def _digest(suite: str) -> str:
    digest = hashlib.sha256(suite.encode() + Path(__file__).read_bytes())
    for path in sorted(path for path in GUEST.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(GUEST)}\0{path.stat().st_mode & 0o111}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build of the image", 0, PACKAGES_SECONDS + FINISH_SECONDS)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(suite: str, folder: Path, progress: Progress) -> None:
    log, staging = folder.with_suffix(".log"), folder.with_suffix(".new")
    log.write_text("")
    shutil.rmtree(staging, ignore_errors=True)  # of a build that was killed
    staging.mkdir()
    try:
        # In TMPDIR and open to all: without root, mmdebstrap works as another user id, who cannot enter a home.
        with tempfile.TemporaryDirectory(prefix="ktfleet-lab-") as scratch_name:
            scratch, identity = Path(scratch_name), str(uuid.uuid4())
            scratch.chmod(0o777)
            require_space(scratch, SCRATCH_MIB, "building the image")
            require_space(staging, CACHE_MIB, "keeping the image")
            _make_keys(scratch)
            _install(suite, scratch, identity, log, progress)
            _finish(scratch, identity, log, progress)
            _keep(scratch, staging, log, progress)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _make_keys(scratch: Path) -> None:
    for name in ("id_ed25519", "ssh_host_ed25519_key"):
        command = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "ktfleet-lab",
            "-f",
            str(scratch / name),
        ]
        subprocess.run(command, check=True)
    (scratch / "ssh_host_ed25519_key").chmod(0o644)  # for the other user id; the machine gets it with 0600


def _install(suite: str, scratch: Path, identity: str, log: Path, progress: Progress) -> None:
    guest, options = scratch / "guest", scratch / "apt.conf"
    shutil.copytree(GUEST, guest)
    options.write_text(_apt_options())
    _write_partition_table(scratch / "disk.raw")
    (scratch / "disk.raw").chmod(0o666)
    as_root = os.geteuid() == 0
    command = [
        # In its own mount namespace, so that a build that is killed leaves nothing mounted.
        *(["unshare", "--mount", "mmdebstrap", "--mode=root"] if as_root else ["mmdebstrap", "--mode=unshare"]),
        "--variant=minbase",
        "--format=null",
        f"--aptopt={options}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT),
        f"--include={','.join(PACKAGES)}",
        f'--essential-hook={guest}/before.sh "$1" {guest}',
        f'--customize-hook={guest}/after.sh "$1" {scratch} {guest}',
        suite,
        "-",
        *_mirrors(suite),
    ]
    environment = {
        "LAB_UUID": identity,
        "LAB_OFFSET": str(FIRST_SECTOR * SECTOR),
        "LAB_MIB": str(DISK_MIB - FIRST_SECTOR * SECTOR // 2**20),
    }
    _run(command, log, Stopwatch(progress, "installing Debian", PACKAGES_SECONDS), environment)


def _finish(scratch: Path, identity: str, log: Path, progress: Progress) -> None:
    """Boot once, without a boot loader, so that the machine itself installs and configures its GRUB."""
    serial = scratch / "serial.log"
    command = [
        *("qemu-system-x86_64", "-nodefaults", "-machine", "q35", "-accel", "tcg,thread=multi", "-smp", "2"),
        *("-m", "1024", "-display", "none", "-serial", f"file:{serial}", "-no-reboot"),
        *("-drive", f"file={scratch}/disk.raw,format=raw,if=virtio,cache=unsafe"),
        *("-kernel", str(scratch / "vmlinuz"), "-initrd", str(scratch / "initrd")),
        *("-append", f"root=UUID={identity} ro console=ttyS0 quiet panic=-1 init=/lab-finish"),
    ]
    _run(command, log, Stopwatch(progress, "installing GRUB", FINISH_SECONDS), limit=FINISH_LIMIT)
    said = serial.read_text(errors="replace")
    with log.open("a") as file:
        file.write(said)
    if "lab: finished" not in said:
        raise _failure(log)


def _keep(scratch: Path, staging: Path, log: Path, progress: Progress) -> None:
    disk = staging / "disk.qcow2"
    command = ["qemu-img", "convert", "-O", "qcow2", str(scratch / "disk.raw"), str(disk)]
    _run(command, log, Stopwatch(progress, "keeping the image", 3))
    disk.chmod(0o444)
    for name in ("id_ed25519", "id_ed25519.pub", "ssh_host_ed25519_key.pub"):
        shutil.copy(scratch / name, staging / name)


def _write_partition_table(disk: Path) -> None:
    """An empty, sparse disk with one bootable Linux partition."""
    beyond_chs = b"\xfe\xff\xff"
    size = DISK_MIB * 2**20 // SECTOR - FIRST_SECTOR
    entry = struct.pack("<B3sB3sII", 0x80, beyond_chs, 0x83, beyond_chs, FIRST_SECTOR, size)
    with disk.open("wb") as file:
        file.truncate(DISK_MIB * 2**20)
        file.seek(446)
        file.write(entry + bytes(48) + b"\x55\xaa")


def _mirrors(suite: str) -> list[str]:
    """Where this machine's own apt gets Debian from; nothing, so mmdebstrap's default, where it is not Debian's."""
    form = "$(ORIGIN) $(RELEASE) $(REPO_URI)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {row.split()[1]: row.split()[2] for row in rows if row.startswith("Debian ") and len(row.split()) == 3}
    plain = [uri for release, uri in found.items() if "-" not in release]
    return [found[suite]] if suite in found else plain[:1]


def _apt_options() -> str:
    """This machine's settings of how apt fetches: proxies, TLS, validity of old mirrors, retries."""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
    fetching = re.compile(r"Acquire::(Check-|https?|ftp|Retries|ForceIPv|Max-|Queue-Mode|By-Hash)", re.IGNORECASE)
    own = [line for line in dump.splitlines() if fetching.match(line) and not line.endswith(' "";')]
    return "\n".join([*own, 'Acquire::Languages "none";', 'APT::Install-Recommends "false";', ""])


def _run(
    command: Sequence[str],
    log: Path,
    watch: Stopwatch,
    environment: Mapping[str, str] | None = None,
    limit: float = 3600,
) -> None:
    """Run a step of the build; its output goes to the log."""
    settings = {**os.environ, "LC_ALL": "C", **(environment or {})}
    settings["PATH"] += ":/usr/sbin:/sbin"
    with log.open("a") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=settings,
            start_new_session=True,
        )
        try:
            while not _ended(process) and watch.seconds < limit:
                watch.tick()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        raise _failure(log)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return False
    return True


def _failure(log: Path) -> LabError:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["nothing"]
    if full := [line for line in lines if "No space left on device" in line]:
        return LabError(
            "the disk is full",
            seen=full[0],
            wanted=f"{SCRATCH_MIB} MiB in {tempfile.gettempdir()} and {CACHE_MIB} MiB in {log.parent}",
            do="free some space, or set TMPDIR and KTFLEET_LAB_CACHE to folders on another disk",
        )
    unreachable = re.compile(r"^[EW]: (Failed to fetch|Unable to fetch)|Temporary failure resolving|Could not connect")
    if failed := [line for line in lines if unreachable.search(line)]:
        return LabError(
            "Debian's packages could not be downloaded",
            seen=failed[0],
            wanted="the mirror of this machine's own apt",
            do="see that `apt-get update` works here, then try again",
        )
    errors = [line for line in lines if line.startswith("E: ")] or lines[-1:]
    return LabError("the image was not built", seen=errors[0], wanted="an installed Debian", do=f"read {log}")
