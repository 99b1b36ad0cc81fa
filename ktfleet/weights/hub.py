"""A checkpoint from a hub: its list of files at one revision, each fetched with resumption and checked by its hash.

Not huggingface_hub: this has to work before anything is installed on the host, has to compare the hash of every file
(that library compares sizes), and must tell how far it is. The protocol is two kinds of GET.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import threading
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ktfleet.problem import Problem
from ktfleet.progress import Progress
from ktfleet.weights.folders import Failed
from ktfleet.weights.patience import Stopped, WrongBytes, attempts
from ktfleet.weights.safetensors import MOST_JSON, Broken, parse, shown

BLOCK = 1 << 20
TIMEOUT_S = 60.0
UNFINISHED = ".unfinished"
_NAME = re.compile(r"(?!\.\.?(/|$))[^/\0\n\\]+(/(?!\.\.?(/|$))[^/\0\n\\]+){0,8}")


@dataclass(frozen=True)
class Remote:
    """One file of the hub. `sha256` for a large one, else `git_sha1`, as git names its content."""

    path: str
    size: int
    sha256: str | None
    git_sha1: str | None


@dataclass(frozen=True)
class Repository:
    """A model at one revision. The token goes with every request to the hub itself, and nowhere else."""

    endpoint: str
    name: str
    revision: str
    token: str | None = field(default=None, repr=False)
    stop: threading.Event = field(default_factory=threading.Event)

    def open(self, path: str, begin: int = 0) -> http.client.HTTPResponse:
        """GET. Raises urllib's and http.client's errors, which `patience` understands."""
        request = urllib.request.Request(f"{self.endpoint}/{path}", headers={"User-Agent": "ktfleet"})
        if self.token:
            # Not sent on after a redirection: files come from another host, by an address that is signed.
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if begin:
            request.add_header("Range", f"bytes={begin}-")
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        return response

    def _place(self, what: str) -> str:
        return f"{shown(what)} of {self.name} at {self.revision[:12]} from {self.endpoint}"

    def files(self) -> list[Remote]:
        """All files of the revision. Raises Failed."""
        path = f"api/models/{quote(self.name)}/revision/{quote(self.revision)}?blobs=true"
        text = b""
        for attempt in attempts(self._place("the list of files"), self.token is not None, self.stop):
            with attempt:
                with self.open(path) as response:
                    text = response.read(MOST_JSON)
                break
        try:
            return self._parsed(parse(text))
        except Broken as error:
            do = "compare the endpoint's answer with Hugging Face's"
            raise Failed(
                Problem(f"the list of files from {self.endpoint} is broken", error.seen, error.wanted, do)
            ) from None

    def _parsed(self, answer: dict[str, Any]) -> list[Remote]:
        if answer.get("sha") != self.revision:
            raise Broken(f"revision {shown(str(answer.get('sha')))}", self.revision)
        listed = answer.get("siblings")
        if not isinstance(listed, list) or not listed:
            raise Broken("no files", "those of the model")
        found = [_remote(entry) for entry in listed]
        if len({remote.path for remote in found}) != len(found):
            raise Broken("a file twice", "every file once")
        return found

    def fetch(self, remote: Remote, folder: Path, progress: Progress) -> str:
        """One file into `folder`, resumed if it was begun. Returns its sha256. Raises Failed, OSError."""
        target = folder / remote.path
        begun = target.with_name(target.name + UNFINISHED)
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in attempts(self._place(remote.path), self.token is not None, self.stop):
            with attempt:
                before = begun.stat().st_size if begun.exists() else 0
                try:
                    sha256 = self._fetch_once(remote, begun, progress)
                finally:
                    attempt.progressed = begun.exists() and begun.stat().st_size > before
                if sha256 is not None:
                    begun.rename(target)
                    return sha256
                progress.add(-begun.stat().st_size)
                begun.unlink()
                attempt.progressed = False
                raise WrongBytes
        raise AssertionError("the last attempt raises")

    def _fetch_once(self, remote: Remote, begun: Path, progress: Progress) -> str | None:
        """What is missing of it. None: the bytes are not the hub's."""
        with begun.open("a+b") as file:
            have = file.tell()
            if have > remote.size:
                return None
            if have < remote.size:
                with self.open(f"{quote(self.name)}/resolve/{self.revision}/{quote(remote.path)}", have) as response:
                    have = _append(file, response, have, remote.size, progress, self.stop)
            if have < remote.size:
                raise http.client.IncompleteRead(b"", remote.size - have)
            file.flush()
            os.fsync(file.fileno())
            return _checked(file, remote)


def _remote(entry: Any) -> Remote:
    try:
        path, size, lfs = entry["rfilename"], entry["size"], entry.get("lfs") or {}
        sha256, git_sha1 = lfs.get("sha256"), entry.get("blobId")
    except (KeyError, TypeError, AttributeError):
        raise Broken(f"a file described as {shown(repr(entry))}", "its name, size and hash") from None
    hashes = [
        isinstance(value, str) and re.fullmatch(rf"[0-9a-f]{{{length}}}", value) is not None
        for value, length in ((sha256, 64), (git_sha1, 40))
    ]
    if not isinstance(path, str) or not _NAME.fullmatch(path) or type(size) is not int or size < 0 or not any(hashes):
        raise Broken(f"a file described as {shown(repr(entry))}", "a path below the folder, its size and hash")
    return Remote(path, size, sha256 if hashes[0] else None, git_sha1 if hashes[1] else None)


def _append(
    file: Any, response: http.client.HTTPResponse, have: int, size: int, progress: Progress, stop: threading.Event
) -> int:
    """Write the answer's bytes. A server that does not know ranges begins anew. Returns what is there then."""
    begins = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    if have and (response.status != 206 or not begins or int(begins[1]) != have):
        file.truncate(0)
        progress.add(-have)
        have = 0
        if response.status == 206:
            raise http.client.IncompleteRead(b"")
    while have < size and (block := response.read(min(BLOCK, size - have))):
        if stop.is_set():
            raise Stopped
        file.write(block)
        have += len(block)
        progress.add(len(block))
    return have


def _checked(file: Any, remote: Remote) -> str | None:
    """The sha256 of the file, if its bytes are those that the hub names."""
    file.seek(0)
    sha256, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % remote.size, usedforsecurity=False)
    while block := file.read(BLOCK):
        sha256.update(block)
        if remote.sha256 is None:
            git.update(block)
    same = sha256.hexdigest() == remote.sha256 if remote.sha256 else git.hexdigest() == remote.git_sha1
    return sha256.hexdigest() if same else None
