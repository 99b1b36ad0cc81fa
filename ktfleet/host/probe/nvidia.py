"""Kernel modules, and the versions of NVIDIA's."""

from __future__ import annotations

import importlib
import io
import re
from functools import partial

from ktfleet.host.probe.reader import LIST_LIMIT, Reader
from ktfleet.host.probe.values import ReadError, parse_line

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from typing import Any, BinaryIO

MODULE_LIMIT = 1 << 27
NVIDIA_MODULE = re.compile(
    rb"^((?:[^\s:]*/)?nvidia(?:-current|-tesla|-legacy)?(?:-[0-9]+[a-z]*)?(?:-open)?\.ko(?:\.xz|\.gz|\.zst)?):",
    re.MULTILINE,
)
"""Debian renames it to nvidia-current.ko."""


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
