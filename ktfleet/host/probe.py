"""Read one host, print it as one line of JSON: the keys of `state.HostState`, ASCII only.

The source of this file is sent to the host and run there (`python3 -c SOURCE ARGS`), or imported for
`collect`. So: stdlib only, Python >= 3.8, no subprocess, nothing of ktfleet. It decides nothing and
never raises: what cannot be read is null (or left out of a map) and `unreadable` says why, keyed by the
absolute path on the host, or by the field or the requested name where no single path is to blame.
With a root other than / it reads a captured tree and never leaves it through a symlink.
"""

from __future__ import annotations

import argparse
import errno
import fnmatch
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import stat
import sys
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, BinaryIO, TypeVar

    T = TypeVar("T")

SCHEMA = 1
READ_LIMIT = 1 << 20
"""Bytes. Nothing that is parsed comes near it; hashing has no limit."""
CHUNK = 1 << 14
CPU_LIMIT = 8192
"""x86 Linux has no more CPUs (CONFIG_NR_CPUS): a garbled range must not eat the memory."""
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
GRUB_CFG = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
GRUB = (*GRUB_CFG, "/etc/default/grub")
SYSTEMD_BOOT = (
    "/boot/loader/loader.conf",
    "/boot/efi/loader/loader.conf",
    "/efi/loader/loader.conf",
    "/etc/kernel/cmdline",
)
EFI = "/sys/firmware/efi"
SECURE_BOOT = EFI + "/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DROP_INS = ("/etc/default/grub", "/etc/default/grub.d/*.cfg", "/etc/kernel/cmdline")
DMA_LATENCY = "/dev/cpu_dma_latency"
EDAC = "/sys/devices/system/edac/mc"
SMBIOS = "/sys/firmware/dmi/tables/DMI"
"""The whole table, as dmidecode reads it: /sys/firmware/dmi/entries needs a module that nobody loads."""
DMI_VENDOR = "/sys/class/dmi/id/sys_vendor"
EDAC_LABEL = re.compile("CPU_SrcID#([0-9]+)_((?:[A-Za-z]+#[0-9]+_)+)DIMM#[0-9]+")
DELL_SLOT = re.compile("([A-D])([0-9]{1,2})")
SOCKET = re.compile("(?<![A-Z0-9])(?:CPU|PROC|P|SOCKET)[ _#-]?([0-9])(?![0-9])")
CHANNEL_LETTER = re.compile("(?:DIMM|[^A-Z])[ _-]?([A-L])[0-9]{1,2}$")
BANK_CHANNEL = re.compile("NODE([0-9])_CHANNEL([0-9])")
PCI = "/sys/bus/pci/devices"
PREFETCHABLE_MEMORY = 0x2200
DISPLAY_MANAGER = "/etc/systemd/system/display-manager.service"
LIST_LIMIT = 1 << 25
"""Bytes of the lists of all packages and of all modules: a desktop's have a few MB."""
MODULE_LIMIT = 1 << 27
NVIDIA_MODULE = re.compile(
    rb"^((?:[^\s:]*/)?nvidia(?:-current|-tesla|-legacy)?(?:-[0-9]+[a-z]*)?(?:-open)?\.ko(?:\.xz|\.gz|\.zst)?):",
    re.MULTILINE,
)
"""Debian renames it to nvidia-current.ko."""
BLOCK = "/sys/block"
NO_DISK = re.compile(
    "(?:loop|ram|zram|dm-|sr|scd|md|fd|nbd|zd|bcache|drbd|rbd)[0-9]|nvme[0-9]+c[0-9]+n|mmcblk[0-9]+[br]"
)
MOUNTS = ("/proc/self/mounts", "/proc/mounts")
CGROUP = "/sys/fs/cgroup"
SLICE = CGROUP + "/system.slice"
DPKG = "/var/lib/dpkg"
DPKG_HEAD = re.compile(rb"Package: (\S+)\n(?:.+\n)*?Status: \S+ \S+ (\S+)")
UNFINISHED = (b"half-installed", b"half-configured", b"unpacked")
INSTALLED = (b"installed", b"triggers-awaited", b"triggers-pending")
LOCKS = (
    DPKG + "/lock-frontend",
    DPKG + "/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
APT = "/etc/apt"
APT_FILE = re.compile("[A-Za-z0-9_:-]+|[A-Za-z0-9_:-][A-Za-z0-9_:.-]*[.]conf")
APT_WORD = re.compile(r'((?:"[^"]*"|\[[^\]]*\]|[^\s"\[])+)(?:\s+|$)')
SYSTEMD = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
CLOUD_INIT = "/run/cloud-init"
REBOOT_REQUIRED = "/run/reboot-required"
TEXT_LIMIT = 4096
MAGIC = re.compile(r"[*?\[]")
MISSING = "no such file"
NO_MATCH = "no readable match"
NOT_A_LINK = "not a symlink"
NOT_RECORDED = "captured tree: not recorded"
REASONS = {
    errno.ENOENT: MISSING,
    errno.ENOTDIR: MISSING,
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "symlink loop",
    errno.EINVAL: NOT_A_LINK,
}


class ReadError(ValueError):
    """Why a value could not be had; the text is what `unreadable` shows."""


def _why(error: Exception) -> str:
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return REASONS.get(error.errno) or os.strerror(error.errno).lower()


def _seen(text: str) -> str:
    return "seen " + ascii(text[:40])


# What the texts mean.


def parse_line(text: str) -> str:
    """Stripped text that must not be empty."""
    if not text.strip():
        raise ReadError("empty")
    return text.strip()


def parse_int(text: str) -> int:
    """A decimal integer, as the kernel prints it."""
    if not re.fullmatch("-?[0-9]{1,18}", text.strip()):
        raise ReadError("not a number: " + _seen(text.strip()))
    return int(text)


def parse_ints(text: str) -> list[int]:
    """Decimal integers between blanks, at least one."""
    return [parse_int(word) for word in parse_line(text).split()]


def parse_count(text: str) -> int:
    """A number that cannot be negative, small enough to be multiplied into bytes."""
    if not re.fullmatch("[0-9]{1,12}", text.strip()):
        raise ReadError("not a count: " + _seen(text.strip()))
    return int(text)


def parse_flag(text: str) -> bool:
    """0 or 1."""
    if text.strip() not in ("0", "1"):
        raise ReadError("neither 0 nor 1: " + _seen(text.strip()))
    return text.strip() == "1"


def parse_cpulist(text: str) -> list[int]:
    """The kernel's list format ("0-19,40-59", "0,2", "") as sorted numbers."""
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        match = re.fullmatch("([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < CPU_LIMIT:
            raise ReadError("not a CPU list: " + _seen(text.strip()))
        cpus.update(range(first, last + 1))
    return sorted(cpus)


def parse_kib(text: str, name: str) -> int:
    """Bytes of one line of a meminfo, the machine's or a node's ("Node 0 MemTotal:  1024 kB")."""
    match = re.search(r"^(?:Node\s+[0-9]+\s+)?%s:\s*([0-9]{1,15}) kB\s*$" % name, text, re.MULTILINE)
    if not match:
        raise ReadError("no %s in kB" % name)
    return int(match[1]) * 1024


def parse_cpuinfo(text: str, name: str) -> str:
    """The value of one key in the first block of /proc/cpuinfo."""
    match = re.search(r"^%s[ \t]*:[ \t]*(\S.*)$" % name, text, re.MULTILINE)
    if not match:
        raise ReadError("no '%s'" % name)
    return match[1].strip()


def parse_os_release(text: str, name: str) -> str:
    """The value of one shell assignment of os-release(5)."""
    match = re.search(r"^%s=(.*)$" % name, text, re.MULTILINE)
    if not match:
        raise ReadError("no %s" % name)
    try:
        return " ".join(shlex.split(match[1]))
    except ValueError:
        raise ReadError("broken quotes: " + _seen(match[1])) from None


def parse_grub_cfg(text: str) -> str:
    """The kernel's arguments of the first `linux` command, as GRUB would hand them over.

    Words that are only a GRUB variable ($vt_handoff) are dropped: their value is set at boot.
    """
    words = _grub_words(text)[1:]
    kept = [word for word in words if not re.fullmatch(r'"?\$(?:\w+|\{\w+\})"?', word)]
    try:
        return " ".join(_grub_word(word) for word in kept)
    except ValueError:
        raise ReadError("broken quotes: " + _seen(" ".join(kept))) from None


def parse_grub_kernel(text: str) -> str:
    """The release of the kernel that the first `linux` command loads (/boot/vmlinuz-RELEASE)."""
    path = _grub_words(text)[0]
    match = re.search(r"/vmlinu[xz]-([\w.+~-]+)$", path)
    if not match:
        raise ReadError("no vmlinuz-RELEASE: " + _seen(path))
    return match[1]


def _grub_words(text: str) -> list[str]:
    match = re.search(r"^[ \t]*linux(?:efi|16)?[ \t]+(\S.*)$", text, re.MULTILINE)
    if not match:
        raise ReadError("no linux line")
    return re.findall(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+|\S""", match[1])


def _grub_word(word: str) -> str:
    # grub_create_loader_cmdline (grub-core/lib/cmdline.c) escapes and quotes what it passes to Linux.
    plain = re.sub(r"([\\'\"])", r"\\\1", "".join(shlex.split(word)))
    return '"%s"' % plain if " " in plain else plain


def _matches(name: str, pattern: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name, pattern)


def _shallow(value: Any, levels: int = 8) -> bool:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_shallow(child, levels - 1) for child in children)


def parse_before(text: str) -> dict[str, Any]:
    """The record from before our first change: a JSON object that strict JSON can carry."""
    try:
        record = json.loads(text)
        json.dumps(record, allow_nan=False)
    except (ValueError, RecursionError):
        raise ReadError("broken JSON: " + _seen(text)) from None
    if not isinstance(record, dict) or not _shallow(record):
        raise ReadError("not a record: " + _seen(text))
    return record


# How files are read.


class Reader:
    """Reads files below `root`, by their absolute path on the host; collects the reasons."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self.live = self.root == "/"
        self.reasons: dict[str, str] = {}
        self.folders: dict[str, str] = {}

    def note(self, key: str, why: str) -> None:
        """Keep a reason; another one for the same key is added to it."""
        known = self.reasons.get(key)
        self.reasons[key] = why if known in (None, why) else "%s; %s" % (known, why)

    def get(self, key: str, read: Callable[[], T]) -> T | None:
        """What `read` returns, or None and a reason."""
        try:
            return read()
        except (OSError, ValueError) as error:
            self.note(key, _why(error))
            return None

    def find(self, key: str, read: Callable[[], T]) -> T | None:
        """What `read` returns, or None: with a reason, unless the file is only missing."""
        try:
            return read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self.note(key, _why(error))
            return None

    def place(self, path: str) -> str:
        """Where the host's `path` lies here."""
        joined = os.path.join(self.root, path.strip("/"))
        if self.live:
            return joined
        real = self._resolve(joined)
        # An absolute link in a captured tree would read this machine's file as if it were the host's.
        if real != self.root and not real.startswith(self.root + "/"):
            raise ReadError("leads out of the captured tree")
        return real

    def _resolve(self, path: str) -> str:
        # realpath, but every folder only once: it is most of the work for the files of 80 CPUs.
        folder, name = os.path.split(path)
        if folder not in self.folders:
            self.folders[folder] = os.path.realpath(folder)
        real = os.path.join(self.folders[folder], name)
        return os.path.realpath(real) if name in ("", ".", "..") or os.path.islink(real) else real

    def open(self, path: str) -> BinaryIO:
        """A regular file. O_NONBLOCK: a FIFO without a writer must not hang the probe."""
        handle = os.open(self.place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            raise ReadError("is a directory" if stat.S_ISDIR(mode) else "not a regular file")
        return os.fdopen(handle, "rb")

    def data(self, path: str, limit: int = READ_LIMIT, cut: bool = False) -> bytes:
        """What a file of at most `limit` bytes holds; of a longer one its start, with `cut`."""
        with self.open(path) as file:
            # In two steps: a buffer of 1 MiB for each small file costs more than the file. None is what
            # a pipe-like file of /proc without data gives.
            data = file.read(CHUNK) or b""
            if len(data) == CHUNK:
                data += file.read(max(0, limit + 1 - CHUNK)) or b""
        if len(data) > limit and not cut:
            raise ReadError("larger than %d bytes" % limit)
        return data[:limit]

    def text(self, path: str, cut: bool = False) -> str:
        """The text of a file of at most 1 MiB; of a longer one its start, with `cut`."""
        return self.data(path, cut=cut).decode("utf-8", "replace")

    def sha256(self, path: str) -> str:
        """Hexadecimal digest of a file of any size."""
        digest = hashlib.sha256()
        with self.open(path) as file:
            for block in iter(lambda: file.read(READ_LIMIT) or b"", b""):
                digest.update(block)
        return digest.hexdigest()

    def link(self, path: str) -> str:
        """What a symlink says, without following it."""
        folder, name = os.path.split(path)
        return os.readlink(os.path.join(self.place(folder), name))

    def masked(self, path: str) -> bool:
        """Whether a symlink to /dev/null lies there: systemd's way to switch a file off."""
        try:
            return self.link(path) == "/dev/null"
        except (OSError, ValueError):
            return False

    def real(self, path: str) -> str:
        """The host's path after following every symlink; parts that do not exist stay as they are."""
        real = os.path.realpath(self.place(path))
        return real if self.live else real[len(self.root) :] or "/"

    def listing(self, path: str) -> list[str]:
        """Sorted names in a folder."""
        return sorted(os.listdir(self.place(path)))

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; none when there is no such folder."""
        return self.find(path, partial(self.listing, path)) or []

    def exists(self, path: str) -> bool:
        """Whether the file is there; where that cannot be told, False and a reason."""
        return self.find(path, lambda: os.stat(self.place(path))) is not None

    def parsed(self, path: str, parse: Callable[[str], T]) -> T:
        """One parsed file."""
        return parse(self.text(path))

    def value(self, path: str, parse: Callable[[str], T]) -> T | None:
        """One parsed file, or None and a reason."""
        return self.get(path, partial(self.parsed, path, parse))

    def optional(self, path: str, parse: Callable[[str], T]) -> T | None:
        """One parsed file, or None: with a reason, unless the file is only missing."""
        return self.find(path, partial(self.parsed, path, parse))

    def first(self, paths: Sequence[str], parse: Callable[[str], T]) -> T | None:
        """The first of several places that holds a good value; all reasons if none does."""
        for path in paths:
            found = self.optional(path, parse)
            if found is not None:
                return found
        for path in paths:
            if path not in self.reasons:
                self.note(path, MISSING)
        return None

    def each(self, key: str, text: str | None, parse: Callable[[str, str], T], names: Sequence[str]) -> list[T | None]:
        """Named values in one text, in order; all None when the text could not be read."""
        if text is None:
            return [None] * len(names)
        return [self.get(key, partial(parse, text, name)) for name in names]

    def matching(self, pattern: str, read: Callable[[str], T]) -> dict[str, T]:
        """What `read` returns for each path that matches; `*` stays within one name."""
        paths = [""]
        for part in pattern.strip("/").split("/"):
            if MAGIC.search(part):
                hits = ((path, name) for path in paths for name in self.names(path or "/"))
                paths = ["%s/%s" % hit for hit in hits if _matches(hit[1], part)]
            else:
                paths = ["%s/%s" % (path, part) for path in paths]
        values = ((path, self.find(path, partial(read, path))) for path in paths)
        return {path: value for path, value in values if value is not None}


# The system, its CPUs and nodes.


def read_os(reader: Reader) -> dict[str, Any]:
    """os-release(5)."""
    text = reader.first(OS_RELEASE, str)
    names = ("ID", "VERSION_ID", "PRETTY_NAME")
    distribution, version, pretty = reader.each("os", text, parse_os_release, names)
    return {"id": distribution, "version_id": version, "pretty_name": pretty}


def read_kernel(reader: Reader) -> dict[str, Any]:
    """The running kernel."""
    return {
        "release": reader.value("/proc/sys/kernel/osrelease", parse_line),
        "boot_id": reader.value("/proc/sys/kernel/random/boot_id", parse_line),
        "cmdline": reader.value("/proc/cmdline", str.strip),
    }


def read_node(reader: Reader, number: int) -> dict[str, Any]:
    """One NUMA node; sizes in bytes, huge pages of 2 MiB."""
    folder = "%s/node%d" % (NODE, number)
    meminfo, pages = folder + "/meminfo", folder + "/hugepages/hugepages-2048kB/"
    text = reader.value(meminfo, str)
    total, free = reader.each(meminfo, text, parse_kib, ("MemTotal", "MemFree"))
    return {
        "node": number,
        "cpus": reader.value(folder + "/cpulist", parse_cpulist) or [],
        "mem_total": total,
        "mem_free": free,
        "distances": reader.value(folder + "/distance", parse_ints),
        "hugepages_total": reader.value(pages + "nr_hugepages", parse_int),
        "hugepages_free": reader.value(pages + "free_hugepages", parse_int),
    }


def read_nodes(reader: Reader) -> list[dict[str, Any]]:
    """Every NUMA node, those without CPUs or memory too."""
    numbers = _numbered(reader.names(NODE), "node")
    if not numbers:
        reader.note("nodes", "no node folder in " + NODE)
    return [read_node(reader, number) for number in numbers]


def read_cpu(reader: Reader, cpu: int, node: int | None) -> dict[str, Any]:
    """One online logical CPU."""
    topology = "%s/cpu%d/topology/" % (CPU, cpu)

    def siblings(text: str) -> list[int]:
        cpus = parse_cpulist(text)
        if cpu not in cpus:
            raise ReadError("does not list CPU %d: %s" % (cpu, _seen(text.strip())))
        return cpus

    return {
        "cpu": cpu,
        "core": reader.value(topology + "core_id", parse_int),
        "socket": reader.value(topology + "physical_package_id", parse_int),
        "node": node,
        "siblings": reader.first((topology + "thread_siblings_list", topology + "core_cpus_list"), siblings),
    }


def read_cpus(reader: Reader, nodes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The online logical CPUs."""
    node_of = {cpu: node["node"] for node in nodes for cpu in node["cpus"]}
    cpus = reader.value(CPU + "/online", parse_cpulist) or _cpus_with_entries(reader)
    if not cpus:
        reader.note("cpus", "no online CPU in " + CPU)
    for cpu in cpus:
        if cpu not in node_of:
            reader.note("cpu%d.node" % cpu, "no node lists this CPU")
    return [read_cpu(reader, cpu, node_of.get(cpu)) for cpu in cpus]


def _cpus_with_entries(reader: Reader) -> list[int]:
    """CPUs whose folder has a topology or a node entry: an offline CPU has neither."""

    def online(cpu: int) -> bool:
        entries = reader.names("%s/cpu%d" % (CPU, cpu))
        return "topology" in entries or bool(_numbered(entries, "node"))

    return [cpu for cpu in _numbered(reader.names(CPU), "cpu") if online(cpu)]


def _numbered(names: Iterable[str], prefix: str) -> list[int]:
    matches = (re.fullmatch(prefix + "([0-9]{1,5})", name) for name in names)
    return sorted({int(match[1]) for match in matches if match})


# How it boots.


def read_loader(reader: Reader, cmdline: str | None) -> str | None:
    """Which boot loader's configuration counts: "grub" or "systemd-boot"."""
    grub = any(reader.exists(path) for path in GRUB)
    systemd_boot = any(reader.exists(path) for path in SYSTEMD_BOOT)
    if grub and systemd_boot:
        # Files of both outlive a change of the loader. The running command line tells: GRUB's `linux`
        # always puts BOOT_IMAGE= in front, systemd-boot never does.
        return "systemd-boot" if cmdline is not None and "BOOT_IMAGE=" not in cmdline else "grub"
    if not grub and not systemd_boot:
        reader.note("boot.loader", "no configuration of grub or systemd-boot")
        return None
    return "grub" if grub else "systemd-boot"


def read_boot(reader: Reader, cmdline: str | None) -> dict[str, Any]:
    """The loader and what can set the kernel's command line."""
    loader = read_loader(reader, cmdline)
    drop_ins: dict[str, str] = {}
    for pattern in DROP_INS:
        drop_ins.update(reader.matching(pattern, reader.sha256))
    if loader != "grub":
        reader.note("boot.next_cmdline", "only read from grub.cfg, and the loader is not grub")
        reader.note("boot.next_kernel", "only read from grub.cfg, and the loader is not grub")
    efi = read_presence(reader, EFI)
    return {
        "loader": loader,
        "next_cmdline": reader.first(GRUB_CFG, parse_grub_cfg) if loader == "grub" else None,
        "next_kernel": reader.first(GRUB_CFG, parse_grub_kernel) if loader == "grub" else None,
        "efi": efi,
        "secure_boot": efi and read_secure_boot(reader),
        "drop_ins": drop_ins,
    }


def read_presence(reader: Reader, path: str) -> bool | None:
    """Whether the path exists; None with a reason where that cannot be told."""
    return reader.exists(path) or (None if path in reader.reasons else False)


def read_secure_boot(reader: Reader) -> bool | None:
    """Whether the firmware only starts what is signed. A firmware without the variable cannot."""

    def read() -> bool:
        data = reader.data(SECURE_BOOT)
        if len(data) != 5:  # Four bytes of attributes, then the value.
            raise ReadError("not 5 bytes")
        return data[4] == 1

    if reader.names(EFI + "/efivars") and not reader.exists(SECURE_BOOT) and SECURE_BOOT not in reader.reasons:
        return False
    return reader.get(SECURE_BOOT, read)


# Memory and idle states.


def parse_swaps(text: str) -> list[dict[str, Any]]:
    """/proc/swaps; its sizes are KiB."""
    rows = re.findall(r"^(\S+)\s+\S+\s+([0-9]{1,12})\s+([0-9]{1,12})\s+-?[0-9]+\s*$", text, re.MULTILINE)
    return [{"device": unescape(name), "size": int(size) << 10, "used": int(used) << 10} for name, size, used in rows]


def unescape(text: str) -> str:
    """A path as /proc/mounts and /proc/swaps print it: blanks and backslashes are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def read_idle_states(reader: Reader) -> list[dict[str, Any]]:
    """The C-states of CPU 0; one whose name or latency cannot be read is left out."""
    folder = CPU + "/cpu0/cpuidle"
    numbers = _numbered(reader.names(folder), "state")
    if not numbers:
        reader.note("idle_states", "no state in " + folder)
    states = (_idle_state(reader, "%s/state%d/" % (folder, number)) for number in numbers)
    return [state for state in states if None not in (state["name"], state["latency_us"])]


def _idle_state(reader: Reader, folder: str) -> dict[str, Any]:
    return {
        "name": reader.value(folder + "name", parse_line),
        "latency_us": reader.value(folder + "latency", parse_count),
        "disabled": reader.optional(folder + "disable", lambda text: text.strip() != "0"),
    }


def dma_latency() -> int:
    """The present cap in microseconds. Opening the device for reading asks for no cap of our own."""
    handle = os.open(DMA_LATENCY, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISCHR(os.fstat(handle).st_mode):
            raise ReadError("not a character device")
        data = os.read(handle, 4)
    finally:
        os.close(handle)
    if len(data) != 4:
        raise ReadError("not 4 bytes")
    return int.from_bytes(data, sys.byteorder, signed=True)


def parse_smbios(table: bytes) -> list[dict[str, Any]]:
    """The memory devices (type 17) of the SMBIOS table, as `Dimm` has them, with the `bank` too."""
    slots = []
    start = 0
    while start + 4 <= len(table) and table[start] != 127:
        length = table[start + 1]
        # Its strings follow, each with a NUL, and one more NUL ends them; without any it is two NULs.
        end = table.find(b"\0\0", start + length)
        if length < 4 or end < 0:
            raise ReadError("broken SMBIOS table at byte %d" % start)
        if table[start] == 17:
            slots.append(_memory_device(table[start : start + length], table[start + length : end].split(b"\0")))
        start = end + 2
    return slots


def _memory_device(fields: bytes, strings: list[bytes]) -> dict[str, Any]:
    def number(offset: int, size: int) -> int:
        return int.from_bytes(fields[offset : offset + size], "little")

    def string(offset: int) -> str:
        index = number(offset, 1)
        return strings[index - 1].decode("utf-8", "replace").strip() if 0 < index <= len(strings) else ""

    def speed(offset: int, extended: int) -> int | None:
        told = number(offset, 2)
        return (number(extended, 4) if told == 0xFFFF else told) or None

    size = number(0x0C, 2)
    # The top bit: KiB. 0x7FFF: in MiB in a wider field. 0xFFFF: unknown.
    wide = number(0x1C, 4) & 0x7FFFFFFF
    known = (size & 0x7FFF) << 10 if size & 0x8000 else (wide if size == 0x7FFF else size) << 20
    return {
        "label": string(0x10),
        "bank": string(0x11),
        "size": None if size == 0xFFFF else known,
        "rated_mts": speed(0x15, 0x54),
        "configured_mts": speed(0x20, 0x58),
    }


def locate(slots: list[tuple[str, str]], dell: bool) -> list[tuple[int | None, str | None]]:
    """Socket and channel of each (label, bank); None where the label has no known form."""
    letters = [DELL_SLOT.fullmatch(label) for label, _ in slots]
    if dell and slots and all(letters):
        return [_dell_slot(match[1], int(match[2]), len(slots)) for match in letters if match]
    places = [_place(label, bank) for label, bank in slots]
    # Some boards count their sockets from 0, others from 1.
    first = 0 if any(socket == 0 for socket, _, counted in places if counted) else 1
    return [(socket - first if counted and socket else socket, channel) for socket, channel, counted in places]


def _place(label: str, bank: str) -> tuple[int | None, str | None, bool]:
    """Socket, channel, and whether the socket still has to be counted from 0."""
    edac = EDAC_LABEL.fullmatch(label)
    if edac:
        return int(edac[1]), ".".join(re.findall("[0-9]+", edac[2])), False
    socket = SOCKET.search(label.upper()) or SOCKET.search(bank.upper())
    if not socket:
        return None, None, False
    letter, node = CHANNEL_LETTER.search(label.upper()), BANK_CHANNEL.search(bank.upper())
    channel = letter[1] if letter else "%s.%s" % (node[1], node[2]) if node else None
    return int(socket[1]), channel, True


def _dell_slot(letter: str, slot: int, slots: int) -> tuple[int, str | None]:
    # PowerEdge from Skylake-SP on: 12 or 16 slots a socket, first the white ones of every channel.
    channels = {24: 6, 32: 8}.get(slots)
    return ord(letter) - ord("A"), str((slot - 1) % channels) if channels else None


def read_edac(reader: Reader) -> list[dict[str, Any]]:
    """The DIMMs that the memory controllers' drivers found; empty slots are not among them."""
    labels = reader.matching(EDAC + "/mc*/dimm*/dimm_label", lambda path: reader.text(path).strip())
    folders = ((label, os.path.dirname(path)) for path, label in labels.items())
    sizes = ((label, reader.value(folder + "/size", parse_count)) for label, folder in folders)
    return [
        {"label": label, "bank": "", "size": size and size << 20, "rated_mts": None, "configured_mts": None}
        for label, size in sizes
    ]


def read_dimms(reader: Reader) -> list[dict[str, Any]] | None:
    """Every DIMM, from EDAC or else every slot from SMBIOS; None and a reason without either."""
    found = reader.find(SMBIOS, lambda: parse_smbios(reader.data(SMBIOS))) or []
    dimms = read_edac(reader)
    if not dimms and not found:
        reader.note("dimms", "no memory controller in EDAC and no SMBIOS table")
        return None
    if dimms:
        _add_speeds(reader, dimms, [slot for slot in found if slot["size"]])
    dimms = dimms or found
    vendor = reader.optional(DMI_VENDOR, str.strip) or ""
    places = locate([(dimm["label"], dimm.pop("bank")) for dimm in dimms], vendor.startswith("Dell"))
    return [dict(dimm, socket=socket, channel=channel) for dimm, (socket, channel) in zip(dimms, places)]


def _add_speeds(reader: Reader, dimms: list[dict[str, Any]], slots: list[dict[str, Any]]) -> None:
    """EDAC knows no speeds, and its labels are not SMBIOS's: only when all are alike is it clear whose they are."""
    names = ("rated_mts", "configured_mts")
    speeds = {tuple(slot[name] for name in names) for slot in slots}
    if len(slots) != len(dimms) or len(speeds) != 1:
        reader.note("dimms.speed", "EDAC does not tell it, and SMBIOS lists no such set of equal DIMMs")
        return
    for dimm in dimms:
        dimm.update(zip(names, next(iter(speeds))))


# Display devices, kernel modules, disks.


def parse_hex(text: str) -> str:
    """A number as sysfs prints it for PCI ("0x10de"), without the 0x."""
    match = re.fullmatch("0x([0-9a-f]{1,8})", text.strip())
    if not match:
        raise ReadError("not a hexadecimal number: " + _seen(text.strip()))
    return match[1]


def parse_bars(text: str) -> int:
    """The size of the largest prefetchable memory region of a PCI device's `resource`."""
    rows = re.findall("^0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16}) 0x([0-9a-f]{1,16})$", text, re.MULTILINE)
    sizes = []
    for row in rows[:6]:  # Then comes the ROM, and the windows of a bridge.
        start, end, flags = (int(word, 16) for word in row)
        if flags & PREFETCHABLE_MEMORY == PREFETCHABLE_MEMORY and 0 < end - start < 1 << 62:
            sizes.append(end - start + 1)
    if not sizes:
        raise ReadError("no prefetchable memory region")
    return max(sizes)


def parse_node(text: str) -> int:
    """The NUMA node of a device."""
    if text.strip() == "-1":
        raise ReadError("the firmware names no node")
    return parse_count(text)


def read_displays(reader: Reader) -> list[dict[str, Any]]:
    """PCI devices of class 0x03, in the order of their addresses."""
    addresses = reader.get(PCI, partial(reader.listing, PCI)) or []
    classes = ((address, reader.optional("%s/%s/class" % (PCI, address), str)) for address in addresses)
    return [_display(reader, address) for address, kind in classes if kind and kind.startswith("0x03")]


def _display(reader: Reader, address: str) -> dict[str, Any]:
    folder = "%s/%s/" % (PCI, address)
    driver = reader.find(folder + "driver", partial(reader.link, folder + "driver"))
    monitors = reader.matching(folder + "drm/card*/card*-*/status", lambda path: reader.text(path).strip())
    plugged = (path.split("/")[-2] for path, status in monitors.items() if status == "connected")
    return {
        "address": address,
        "vendor": reader.value(folder + "vendor", parse_hex),
        "device": reader.value(folder + "device", parse_hex),
        "numa_node": reader.value(folder + "numa_node", parse_node),
        "driver": driver and os.path.basename(driver),
        "link_width": reader.value(folder + "current_link_width", parse_count),
        "link_speed": reader.value(folder + "current_link_speed", parse_line),
        "max_link_width": reader.value(folder + "max_link_width", parse_count),
        "max_link_speed": reader.value(folder + "max_link_speed", parse_line),
        "bar1_bytes": reader.value(folder + "resource", parse_bars),
        "boot_vga": reader.value(folder + "boot_vga", parse_flag),
        "monitors": [name.partition("-")[2] for name in plugged],
    }


def read_display_manager(reader: Reader) -> str | None:
    """The unit that display-manager.service stands for, unless it is masked."""
    target = reader.find(DISPLAY_MANAGER, partial(reader.link, DISPLAY_MANAGER))
    return os.path.basename(target) if target and target != "/dev/null" else None


def parse_modules(text: str) -> list[str]:
    """The names in /proc/modules, sorted."""
    return sorted(line.split()[0] for line in text.splitlines() if line.strip())


def read_nvidia(reader: Reader, release: str | None) -> dict[str, Any]:
    """NVIDIA's module as loaded, and as the next load for this kernel would find it."""
    path = _nvidia_file(reader, release)
    info = (reader.get(path, partial(read_modinfo, reader, path)) if path else None) or {}
    return {
        "loaded": reader.optional("/sys/module/nvidia/version", parse_line),
        "on_disk": info.get("version"),
        "license": info.get("license"),
    }


def _nvidia_file(reader: Reader, release: str | None) -> str | None:
    if not release or not re.fullmatch(r"[\w.+~-]+", release):
        reader.note("nvidia.on_disk", "the kernel's release is unknown")
        return None
    folder = "/lib/modules/%s/" % release
    # The file that modprobe takes, wherever DKMS, a package or NVIDIA's installer put it.
    found = partial(reader.data, folder + "modules.dep", LIST_LIMIT)
    match = NVIDIA_MODULE.search(reader.get(folder + "modules.dep", found) or b"")
    return folder + match[1].decode("utf-8", "replace") if match else None


def read_modinfo(reader: Reader, path: str) -> dict[str, str]:
    """What `modinfo` shows of a kernel module's file."""
    with reader.open(path) as file:
        suffix = path.rsplit(".", 1)[1]
        return parse_modinfo(file if suffix == "ko" else io.BytesIO(_unpacked(file.read(MODULE_LIMIT), suffix)))


def _unpacked(data: bytes, suffix: str) -> bytes:
    """Plain bytes. The packers are imported here: most hosts have plain files, and each import costs time."""
    try:
        if suffix == "xz":
            lzma = importlib.import_module("lzma")
            plain: bytes = lzma.LZMADecompressor(memlimit=MODULE_LIMIT).decompress(data, MODULE_LIMIT)
        elif suffix == "gz":
            plain = importlib.import_module("zlib").decompressobj(31).decompress(data, MODULE_LIMIT)
        else:
            plain = importlib.import_module("compression.zstd").ZstdDecompressor().decompress(data, MODULE_LIMIT)
    except ImportError:  # Python has zstd from 3.14 on.
        raise ReadError("compressed with " + {"zst": "zstd"}.get(suffix, suffix)) from None
    except Exception as error:  # Each packer has an error class of its own.
        raise ReadError("cannot be unpacked: " + ascii(str(error))) from None
    return plain


def parse_modinfo(file: BinaryIO) -> dict[str, str]:
    """The key=value strings in the section .modinfo of a 64-bit little-endian ELF file."""

    def part(offset: int, size: int) -> bytes:
        if offset + size > MODULE_LIMIT:
            raise ReadError("broken ELF file")
        file.seek(offset)
        return file.read(size)

    def number(data: bytes, offset: int, size: int) -> int:
        return int.from_bytes(data[offset : offset + size], "little")

    def body(header: bytes) -> bytes:
        return part(number(header, 24, 8), number(header, 32, 8))

    head = part(0, 64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ReadError("not a 64-bit ELF file")
    table = part(number(head, 40, 8), 64 * number(head, 60, 2))
    headers = [table[start : start + 64] for start in range(0, len(table), 64)]
    last = number(head, 62, 2)
    names = body(headers[last]) if last < len(headers) else b""
    for header in headers:
        if names.startswith(b".modinfo\0", number(header, 0, 4)):
            words = body(header).decode("utf-8", "replace").split("\0")
            return {key: value for key, _, value in (word.partition("=") for word in words)}
    raise ReadError("no section .modinfo")


def read_disks(reader: Reader) -> list[dict[str, Any]]:
    """Block devices that are disks: neither partitions nor made of other devices."""
    names = reader.get(BLOCK, partial(reader.listing, BLOCK)) or []
    return [_disk(reader, name) for name in names if not NO_DISK.match(name)]


def _disk(reader: Reader, name: str) -> dict[str, Any]:
    folder = "%s/%s/" % (BLOCK, name)
    sectors = reader.value(folder + "size", parse_count)
    return {
        "name": name,
        "size": sectors if sectors is None else sectors * 512,  # Whatever the disk's own sectors are.
        "rotational": reader.value(folder + "queue/rotational", parse_flag),
        "model": reader.optional(folder + "device/model", parse_line),
    }


# File systems and services.


def parse_mounts(text: str) -> dict[str, tuple[str, str, str]]:
    """Mount point -> device, type, options. The last one on a point hides the others."""
    rows = (line.split(" ") for line in text.splitlines())
    return {unescape(row[1]): (unescape(row[0]), row[2], row[3]) for row in rows if len(row) >= 4}


def read_mounts(reader: Reader, paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each path the file system that holds it, or would; left out with a reason where none can be found."""
    table = reader.first(MOUNTS, parse_mounts) if paths else None
    if table is None:
        return {}
    if not reader.live:
        reader.note("mounts", NOT_RECORDED)
    found = ((path, reader.get(path, partial(_mount, reader, table, path))) for path in paths)
    return {path: mount for path, mount in found if mount is not None}


def _mount(reader: Reader, table: dict[str, tuple[str, str, str]], path: str) -> dict[str, Any]:
    real = reader.real(path)
    points = [point for point in table if point == "/" or real == point or real.startswith(point + "/")]
    if not points:
        raise ReadError("no mount holds it")
    point = max(points, key=len)
    device, kind, options = table[point]
    room = reader.get(point, lambda: os.statvfs(point)) if reader.live else None
    return {
        "mount": point,
        "device": device,
        "type": kind,
        "read_only": "ro" in options.split(","),
        "size": room and room.f_blocks * room.f_frsize,
        "free": room and room.f_bavail * room.f_frsize,
    }


def read_units(reader: Reader, units: Iterable[str], environment: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The asked services as their control groups show them; left out with a reason without cgroup v2."""
    asked = list(units)
    if not asked or reader.exists(CGROUP + "/cgroup.controllers"):
        return {unit: read_unit(reader, SLICE + "/" + unit, environment) for unit in asked}
    for unit in asked:
        reader.note(unit, "no cgroup v2 in " + CGROUP)
    return {}


def read_unit(reader: Reader, folder: str, environment: Sequence[str]) -> dict[str, Any]:
    """One service. Its limits are those of its own group and of the groups around it."""
    pids = sorted(_pids(reader, folder))
    running = reader.exists(folder)

    def smallest(file: str) -> str | None:
        if not running:
            return None
        texts = (reader.optional("%s/%s" % (group, file), _limit) for group in (folder, SLICE, CGROUP))
        numbers = [number for number in texts if number is not None]
        return str(min(numbers)) if numbers else None

    def nearest(file: str) -> str | None:
        texts = [reader.optional("%s/%s" % (group, file), str.strip) for group in (folder, SLICE) if running]
        return next((text for text in texts if text and not text.startswith("max")), None)

    return {
        "active": bool(pids),
        "environment": _environment(reader, pids[0], environment) if pids and environment else {},
        "memory_max": smallest("memory.max"),
        "memory_high": smallest("memory.high"),
        "memory_swap_max": smallest("memory.swap.max"),
        "cpus": nearest("cpuset.cpus"),
        "cpu_max": nearest("cpu.max"),
    }


def _pids(reader: Reader, folder: str) -> list[int]:
    """The processes of a group, or of the groups below it: a service with delegation keeps none itself."""
    for pattern in ("/cgroup.procs", "/*/cgroup.procs"):
        found = reader.matching(folder + pattern, lambda path: reader.text(path).split())
        pids = [int(word) for words in found.values() for word in words if re.fullmatch("[0-9]{1,9}", word)]
        if pids:
            return pids
    return []


def _limit(text: str) -> int | None:
    return None if text.strip() == "max" else parse_int(text)


def _environment(reader: Reader, pid: int, names: Sequence[str]) -> dict[str, str]:
    """The named variables only: the others may be secrets."""
    text = reader.optional("/proc/%d/environ" % pid, str) or ""
    pairs = (word.partition("=") for word in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals and name in names}


# Packages and their settings.


def read_packages(reader: Reader, patterns: Sequence[str]) -> dict[str, Any]:
    """What dpkg says, and who holds it."""
    status = reader.get(DPKG + "/status", lambda: reader.data(DPKG + "/status", LIST_LIMIT)) or b""
    installed, unfinished = parse_dpkg(status, patterns)
    steps = reader.get(DPKG + "/updates", partial(reader.listing, DPKG + "/updates"))
    return {
        "installed": installed,
        "locked_by": read_live(reader, "packages.locked_by", partial(read_lock, reader)),
        # dpkg keeps its unfinished steps in files whose names are numbers, and refuses to start over them.
        "interrupted": None if steps is None else any(re.fullmatch("[0-9]+", name) for name in steps),
        "unfinished": unfinished,
    }


def parse_dpkg(status: bytes, patterns: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Versions of the installed packages that match, and the packages that are half installed."""
    asked = re.compile(("|".join(map(fnmatch.translate, patterns)) or "(?!)").encode("utf-8", "replace"))
    # The file has megabytes: only the paragraphs that matter are decoded.
    chosen, unfinished, native = [], set(), ""
    for paragraph in status.split(b"\n\n"):
        match = DPKG_HEAD.match(paragraph)
        if not match:
            continue
        name, condition = match.groups()
        if name == b"dpkg":
            native = _field(paragraph, b"Architecture")
        if condition in UNFINISHED:
            unfinished.add(name.decode("utf-8", "replace"))
        elif condition in INSTALLED and asked.match(name):
            fields = (_field(paragraph, field) for field in (b"Architecture", b"Version"))
            chosen.append((name.decode("utf-8", "replace"), *fields))
    # The same package of two architectures: the other one is named as dpkg names it.
    return {
        name if kind in ("all", native or kind) else name + ":" + kind: version for name, kind, version in chosen
    }, sorted(unfinished)


def _field(paragraph: bytes, name: bytes) -> str:
    match = re.search(b"\n" + name + rb":[ \t]*(.*)", paragraph)
    return match[1].decode("utf-8", "replace").strip() if match else ""


def read_lock(reader: Reader) -> str | None:
    """Who holds a lock of dpkg or apt."""
    for path in LOCKS:
        pid = reader.find(path, partial(_lock_owner, reader, path))
        if pid:
            name = reader.optional("/proc/%d/comm" % pid, parse_line)
            return "%s (pid %d)" % (name or "a process", pid)
    return None


def _lock_owner(reader: Reader, path: str) -> int:
    """The process that keeps others from locking this file; 0: none.

    The kernel is asked (F_GETLK takes no lock). /proc/locks has device numbers that are not those of stat on btrfs.
    """
    import fcntl
    import struct

    layout = "hhqqi4x"  # struct flock: type, whence, start, length, pid.
    with reader.open(path) as file:
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


class AptOptions:
    """apt's tree of options: names in any case, lists as children without a name, in order."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], str] = {}
        self.items = 0

    def path(self, name: str) -> tuple[str, ...]:
        """The parts of A::B, found as apt finds them: after a ::, the next one is looked for one character on."""
        parts = []
        start = at = 0
        while len(name) - at >= 2:
            if name.startswith("::", at):
                parts.append(name[start:at].lower())
                start = at = at + 2
            at += 1
        return (*parts, name[start:].lower())

    def set(self, name: str, value: str) -> None:
        """Set one option; an empty part is a new item of a list."""
        place: tuple[str, ...] = ()
        for part in self.path(name):
            self.items += 1
            place = (*place, part or "\0%d" % self.items)
            self.values.setdefault(place, "")
        self.values[place] = value

    def clear(self, name: str) -> None:
        """Empty an option and forget everything below it."""
        place = self.path(name)
        kept = {path: value for path, value in self.values.items() if path == place or path[: len(place)] != place}
        self.values = {path: "" if path == place else value for path, value in kept.items()}

    def get(self, name: str) -> str:
        """The value of an option, followed by those of its list."""
        place = self.path(name)
        below = [value for path, value in self.values.items() if path[:-1] == place]
        return " ".join(filter(None, [self.values.get(place, ""), *below]))


def parse_apt_conf(text: str, options: AptOptions) -> None:
    """Add what one file of apt.conf(5) sets, as ReadConfigFile of apt does; what comes before an error counts."""
    scopes: list[str] = []
    parent = statement = ""
    for number, piece, end in _apt_pieces(text):
        statement = " ".join(filter(None, (statement, piece)))
        if not statement and end == "{":
            raise ReadError("line %d: block without a name" % number)
        if statement and end:
            tag, word = _apt_words(statement, end, number)
            if end == "{":
                scopes.append(parent)
                parent, tag = _apt_join(parent, tag), ""
            _apt_set(options, parent, tag, word, end, number)
            statement = ""
        if end == "}":
            parent = scopes.pop() if scopes else ""
    if statement:
        raise ReadError("junk at the end: " + _seen(statement))


def _apt_pieces(text: str) -> Iterable[tuple[int, str, str]]:
    """Line number, text, and the { } or ; that ends it ("" at the end of a line), without comments."""
    comment = False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.replace("\t", " " * 8).strip()
        if comment:
            _, closed, line = line.partition("*/")
            comment = not closed
        # A quote that stays open hides the rest of its line, here as everywhere below.
        for match in re.finditer(r'"[^"]*"?|//|#(?!clear|include|x-apt-configure-index)', line):
            if match[0][0] != '"':
                line = line[: match.start()]
                break
        kept = []
        for match in re.finditer(r'"[^"]*"?|/\*.*?\*/|/\*.*|[^"/]+|.', line):
            if match[0].startswith("/*"):
                comment = not match[0].endswith("*/") or len(match[0]) < 4
            else:
                kept.append(match[0])
        for piece, end in re.findall(r'((?:[^{};"]|"[^"]*"?)*)([{};]?)', "".join(kept)):
            yield number, piece.strip(), end


def _apt_words(statement: str, end: str, number: int) -> tuple[str, str | None]:
    """Name and value. One word alone is a value, or the name of a block."""
    first = APT_WORD.match(statement)
    if not first:
        raise ReadError("line %d: malformed name" % number)
    tag, rest = _apt_plain(first[1]), statement[first.end() :]
    if not rest:
        return (tag, None) if end == "{" else ("", tag)
    if re.fullmatch(r'(?:"[^"]*"|\s)+', rest):
        return tag, re.sub(r'"([^"]*)"|\s+', lambda match: " " if match[1] is None else match[1], rest)
    second = APT_WORD.fullmatch(rest)
    if not second:
        raise ReadError("line %d: junk after the value" % number)
    return tag, _apt_plain(second[1])


def _apt_plain(word: str) -> str:
    return re.sub('"|%([0-9a-fA-F]{2})', lambda match: chr(int(match[1], 16)) if match[1] else "", word)


def _apt_set(options: AptOptions, parent: str, tag: str, word: str | None, end: str, number: int) -> None:
    if tag.startswith("#"):
        if parent or tag not in ("#clear", "#x-apt-configure-index"):
            raise ReadError("line %d: directive that is not followed: %s" % (number, _seen(tag)))
        if tag == "#clear" and word:
            options.clear(word)
    elif word == "#clear" and not tag:
        raise ReadError("line %d: #clear without an option" % number)
    elif word is not None:
        # In a block, a value without a name is one more item of its list.
        options.set(parent if end == "{" else _apt_join(parent, tag), word)


def _apt_join(parent: str, tag: str) -> str:
    return parent + "::" + tag if parent else tag


def read_apt(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """The asked options of apt that are set. For apt an empty value is none."""
    asked = list(names)
    options = AptOptions()
    parts = [APT + "/apt.conf.d/" + name for name in reader.names(APT + "/apt.conf.d") if APT_FILE.fullmatch(name)]
    for path in (*parts, APT + "/apt.conf") if asked else ():
        reader.optional(path, lambda text: parse_apt_conf(text, options))
    return {name: options.get(name) for name in asked if options.get(name)}


def parse_journald(text: str) -> dict[str, str]:
    """The assignments in the section [Journal] of one file."""
    values: dict[str, str] = {}
    section = ""
    # A comment between the lines of a value does not end it.
    for line in re.sub(r"\\\n(?:[ \t]*[#;].*\n)*", " ", text).splitlines():
        name, equals, value = line.strip().partition("=")
        if name.startswith("["):
            section = line.strip()
        elif section == "[Journal]" and equals and name[:1] not in ("#", ";"):
            values[name.strip()] = value.strip()
    return values


def read_journald(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """The asked options of journald that are set: the first main file, then the drop-ins by name."""
    asked = list(names)
    mains = [folder + "/journald.conf" for folder in SYSTEMD if asked and reader.exists(folder + "/journald.conf")]
    drop_ins: dict[str, str] = {}
    for folder in reversed(SYSTEMD) if asked else ():
        names_here = reader.names(folder + "/journald.conf.d")
        drop_ins.update((name, "%s/journald.conf.d/%s" % (folder, name)) for name in names_here)
    files = [*mains[:1], *(drop_ins[name] for name in sorted(drop_ins) if name.endswith(".conf"))]
    values: dict[str, str] = {}
    for path in files:
        if not reader.masked(path):
            values.update(reader.optional(path, parse_journald) or {})
    return {name: values[name] for name in asked if values.get(name)}


# What the running system says about itself.


def parse_cloud_result(text: str) -> str:
    """cloud-init's result.json."""
    try:
        errors = json.loads(text)["v1"]["errors"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise ReadError("not a result of cloud-init: " + _seen(text)) from None
    return "error" if errors else "done"


def read_cloud_init(reader: Reader) -> str | None:
    """How far cloud-init is in this boot."""
    names = reader.names(CLOUD_INIT)
    if CLOUD_INIT in reader.reasons:
        return None
    if "result.json" in names:
        return reader.value(CLOUD_INIT + "/result.json", parse_cloud_result)
    return "running" if {"status.json", "enabled"} & set(names) else "absent"


def read_reboot_required(reader: Reader) -> list[str] | None:
    """The packages that ask for a reboot."""
    if not reader.exists(REBOOT_REQUIRED):
        return None
    packages = reader.optional(REBOOT_REQUIRED + ".pkgs", str.split)
    return sorted(set(packages or ())) or ["unknown"]


def clock_synchronised() -> bool:
    """Whether something keeps the clock right, by timedatectl's rule: the kernel knows an error below 16 s.

    STA_UNSYNC is not asked: chrony sets it, too, to keep the kernel from writing the hardware clock.
    """
    import ctypes

    timex = (ctypes.c_long * 64)()  # More than the struct; modes, the first field, 0: only read.
    if ctypes.CDLL(None).adjtimex(timex) < 0:
        raise ReadError("adjtimex failed")
    return bool(timex[3] < 16_000_000)


def read_live(reader: Reader, key: str, read: Callable[[], T]) -> T | None:
    """What only a running host knows."""
    if reader.live:
        return reader.get(key, read)
    reader.note(key, NOT_RECORDED)
    return None


def read_texts(reader: Reader, paths: Iterable[str]) -> dict[str, str | None]:
    """Stripped text of small files."""

    def read(path: str) -> str:
        return reader.data(path, TEXT_LIMIT, cut=True).decode("utf-8", "replace").strip()

    return {path: reader.get(path, partial(read, path)) for path in paths}


# What the caller asked for.


def read_sysctl(reader: Reader, names: Iterable[str]) -> dict[str, str]:
    """Kernel parameters by name; tabs between numbers become spaces."""

    def read(name: str) -> str:
        return re.sub(r"\t+", " ", reader.text(sysctl_path(name)).strip())

    values = ((name, reader.get(name, partial(read, name))) for name in names)
    return {name: value for name, value in values if value is not None}


def sysctl_path(name: str) -> str:
    """The file of a name as sysctl(8) reads it: dots and slashes swap, unless a slash comes first."""
    first = re.search("[./]", name)
    swapped = first is not None and first[0] == "."
    return "/proc/sys/" + (name.translate({46: "/", 47: "."}) if swapped else name)


def read_sysfs(reader: Reader, patterns: Iterable[str]) -> dict[str, str]:
    """Stripped text of every matching path; a pattern without any gets a reason."""
    texts: dict[str, str] = {}
    for pattern in patterns:
        found = reader.matching(pattern, lambda path: reader.text(path).strip())
        texts.update(found)
        if not found and pattern not in reader.reasons:
            reader.note(pattern, NO_MATCH if MAGIC.search(pattern) else MISSING)
    return texts


def glibc_version() -> str:
    """Version of the running C library, such as "2.36"."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        raise ReadError("not glibc: " + _seen(name))
    return version


def read_machine(reader: Reader) -> dict[str, Any]:
    """Processor model and flags, memory in bytes, cpufreq driver."""
    cpuinfo = reader.get("/proc/cpuinfo", lambda: reader.text("/proc/cpuinfo", cut=True))
    model, flags = reader.each("/proc/cpuinfo", cpuinfo, parse_cpuinfo, ("model name", "flags"))
    meminfo = reader.value("/proc/meminfo", str)
    total, available = reader.each("/proc/meminfo", meminfo, parse_kib, ("MemTotal", "MemAvailable"))
    return {
        "cpu_model": model,
        "cpu_flags": None if flags is None else flags.split(),
        "mem_total": total,
        "mem_available": available,
        "cpufreq_driver": reader.value(CPU + "/cpu0/cpufreq/scaling_driver", parse_line),
    }


def collect(
    root: str = "/",
    sysctl: Iterable[str] = (),
    sysfs: Iterable[str] = (),
    files: Iterable[str] = (),
    links: Iterable[str] = (),
    before: str | None = None,
    mounts: Sequence[str] = (),
    units: Iterable[str] = (),
    environment: Sequence[str] = (),
    packages: Sequence[str] = (),
    apt: Iterable[str] = (),
    journald: Iterable[str] = (),
    texts: Iterable[str] = (),
) -> dict[str, Any]:
    """The state of the host whose files lie below `root`, in plain JSON types."""
    reader = Reader(root)
    # Asking CPUID needs machine code: `ktfleet probe` does it, where py-cpuinfo is.
    reader.note("cpu_flags_cpuid", "the probe does not ask CPUID")
    kernel = read_kernel(reader)
    nodes = read_nodes(reader)
    kept = reader.find(before, partial(reader.parsed, before, parse_before)) if before else None
    record = {
        "schema": SCHEMA,
        "os": read_os(reader),
        "kernel": kernel,
        "cpus": read_cpus(reader, nodes),
        "nodes": nodes,
        **read_machine(reader),
        "cpu_flags_cpuid": None,
        "glibc": read_live(reader, "glibc", glibc_version),
        "python": read_live(reader, "python", lambda: "%d.%d.%d" % sys.version_info[:3]),
        "idle_driver": reader.value(CPU + "/cpuidle/current_driver", parse_line),
        "idle_states": read_idle_states(reader),
        "cpu_dma_latency_us": read_live(reader, "cpu_dma_latency_us", dma_latency),
        "swaps": reader.value("/proc/swaps", parse_swaps),
        "dimms": read_dimms(reader),
        "displays": read_displays(reader),
        "display_manager": read_display_manager(reader),
        "modules": reader.value("/proc/modules", parse_modules),
        "nvidia": read_nvidia(reader, kernel["release"]),
        "disks": read_disks(reader),
        "mounts": read_mounts(reader, mounts),
        "units": read_units(reader, units, environment),
        "packages": read_packages(reader, packages),
        "apt": read_apt(reader, apt),
        "journald": read_journald(reader, journald),
        "cloud_init": read_cloud_init(reader),
        "reboot_required": read_reboot_required(reader),
        "clock_synchronised": read_live(reader, "clock_synchronised", clock_synchronised),
        "boot": read_boot(reader, kernel["cmdline"]),
        "sysctl": read_sysctl(reader, sysctl),
        "sysfs": read_sysfs(reader, sysfs),
        "files": {path: reader.get(path, partial(reader.sha256, path)) for path in files},
        "links": {path: reader.get(path, partial(reader.link, path)) for path in links},
        "texts": read_texts(reader, texts),
        "before": kept or {},
        "unreadable": reader.reasons,
    }
    # Names that are not UTF-8 arrive as lone surrogates, which JSON readers refuse.
    plain: dict[str, Any] = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line of JSON; 0, or 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="probe", allow_abbrev=False, description="Print this host's state as JSON.")
    parser.add_argument("--root", default="/", help="folder of a captured tree (proc/, sys/, etc/)")
    parser.add_argument("--before", metavar="PATH", help="record of the values before our first change")
    for option, name, metavar in (
        ("--sysctl", "sysctl", "NAME"),
        ("--sysfs", "sysfs", "PATTERN"),
        ("--file", "files", "PATH"),
        ("--link", "links", "PATH"),
        ("--mount", "mounts", "PATH"),
        ("--unit", "units", "NAME"),
        ("--environment", "environment", "NAME"),
        ("--package", "packages", "PATTERN"),
        ("--apt", "apt", "OPTION"),
        ("--journald", "journald", "OPTION"),
        ("--text", "texts", "PATH"),
    ):
        parser.add_argument(option, nargs="*", default=[], action="extend", dest=name, metavar=metavar)
    arguments = parser.parse_args(argv)
    try:
        record = collect(**vars(arguments))
    except Exception as error:  # One line of JSON whatever happens: the plan refuses on it, by name.
        record = {"schema": SCHEMA, "unreadable": {"probe": "failed: %s" % ascii(error)}}
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
