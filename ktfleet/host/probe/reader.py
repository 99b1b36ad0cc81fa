"""Reads files of the host, by their absolute path there; collects the reasons of what could not be read."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from functools import partial

from ktfleet.host.probe.values import MISSING, ReadError, why

TYPE_CHECKING = False
if TYPE_CHECKING:  # Only annotations need it, and importing typing is a tenth of the probe's time.
    from collections.abc import Callable, Sequence
    from typing import BinaryIO, TypeVar

    T = TypeVar("T")

READ_LIMIT = 1 << 20
"""Bytes. Nothing that is parsed comes near it; hashing has no limit."""
CHUNK = 1 << 14
LIST_LIMIT = 1 << 25
"""Bytes of the lists of all packages and of all modules: a desktop's have a few MB."""
MAGIC = re.compile(r"[*?\[]")
NO_MATCH = "no readable match"
NOT_RECORDED = "captured tree: not recorded"


def _matches(name: str, pattern: str) -> bool:
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name, pattern)


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
            self.note(key, why(error))
            return None

    def find(self, key: str, read: Callable[[], T]) -> T | None:
        """What `read` returns, or None: with a reason, unless the file is only missing."""
        try:
            return read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self.note(key, why(error))
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


def read_live(reader: Reader, key: str, read: Callable[[], T]) -> T | None:
    """What only a running host knows."""
    if reader.live:
        return reader.get(key, read)
    reader.note(key, NOT_RECORDED)
    return None
