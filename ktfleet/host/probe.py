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
DROP_INS = ("/etc/default/grub", "/etc/default/grub.d/*.cfg", "/etc/kernel/cmdline")
MAGIC = re.compile(r"[*?\[]")
MISSING = "no such file"
NO_MATCH = "no readable match"
NOT_A_LINK = "not a symlink"
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
    match = re.search(r"^[ \t]*linux(?:efi|16)?[ \t]+(\S.*)$", text, re.MULTILINE)
    if not match:
        raise ReadError("no linux line")
    words = re.findall(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+|\S""", match[1])
    kept = [word for word in words[1:] if not re.fullmatch(r'"?\$(?:\w+|\{\w+\})"?', word)]
    try:
        return " ".join(_grub_word(word) for word in kept)
    except ValueError:
        raise ReadError("broken quotes: " + _seen(match[1])) from None


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

    def text(self, path: str, cut: bool = False) -> str:
        """The text of a file of at most 1 MiB; of a longer one its start, with `cut`."""
        with self.open(path) as file:
            # In two steps: a buffer of 1 MiB for each small file costs more than the file. None is what
            # a pipe-like file of /proc without data gives.
            data = file.read(CHUNK) or b""
            if len(data) == CHUNK:
                data += file.read(READ_LIMIT + 1 - CHUNK) or b""
        if len(data) > READ_LIMIT and not cut:
            raise ReadError("larger than %d bytes" % READ_LIMIT)
        return data[:READ_LIMIT].decode("utf-8", "replace")

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

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; none when there is no such folder."""
        return sorted(self.find(path, lambda: os.listdir(self.place(path))) or ())

    def exists(self, path: str) -> bool:
        """Whether the file is there; where that cannot be told, False and a reason."""
        return self.find(path, lambda: os.stat(self.place(path))) is not None

    def parsed(self, path: str, parse: Callable[[str], T]) -> T:
        """One parsed file."""
        return parse(self.text(path))

    def value(self, path: str, parse: Callable[[str], T]) -> T | None:
        """One parsed file, or None and a reason."""
        return self.get(path, partial(self.parsed, path, parse))

    def first(self, paths: Sequence[str], parse: Callable[[str], T]) -> T | None:
        """The first of several places that holds a good value; all reasons if none does."""
        for path in paths:
            found = self.find(path, partial(self.parsed, path, parse))
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
    following = reader.first(GRUB_CFG, parse_grub_cfg) if loader == "grub" else None
    return {"loader": loader, "next_cmdline": following, "drop_ins": drop_ins}


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


def read_software(reader: Reader) -> dict[str, Any]:
    """Versions that only a running host knows."""
    if not reader.live:
        reader.note("glibc", "captured tree: not recorded")
        reader.note("python", "captured tree: not recorded")
        return {"glibc": None, "python": None}
    return {"glibc": reader.get("glibc", glibc_version), "python": "%d.%d.%d" % sys.version_info[:3]}


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
) -> dict[str, Any]:
    """The state of the host whose files lie below `root`, in plain JSON types."""
    reader = Reader(root)
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
        **read_software(reader),
        "boot": read_boot(reader, kernel["cmdline"]),
        "sysctl": read_sysctl(reader, sysctl),
        "sysfs": read_sysfs(reader, sysfs),
        "files": {path: reader.get(path, partial(reader.sha256, path)) for path in files},
        "links": {path: reader.get(path, partial(reader.link, path)) for path in links},
        "before": kept or {},
        "unreadable": reader.reasons,
    }
    # Names that are not UTF-8 arrive as lone surrogates, which JSON readers refuse.
    plain: dict[str, Any] = json.loads(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line of JSON; 0, or 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="probe", description="Print this host's state as JSON.")
    parser.add_argument("--root", default="/", help="folder of a captured tree (proc/, sys/, etc/)")
    parser.add_argument("--sysctl", nargs="*", default=[], action="extend", metavar="NAME")
    parser.add_argument("--sysfs", nargs="*", default=[], action="extend", metavar="PATTERN")
    parser.add_argument("--file", nargs="*", default=[], action="extend", dest="files", metavar="PATH")
    parser.add_argument("--link", nargs="*", default=[], action="extend", dest="links", metavar="PATH")
    parser.add_argument("--before", metavar="PATH", help="record of the values before our first change")
    arguments = parser.parse_args(argv)
    try:
        record = collect(**vars(arguments))
    except Exception as error:  # One line of JSON whatever happens: the plan refuses on it, by name.
        record = {"schema": SCHEMA, "unreadable": {"probe": "failed: %s" % ascii(error)}}
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
