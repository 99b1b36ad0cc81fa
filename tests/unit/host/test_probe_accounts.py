"""Users, groups and the owners of folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ktfleet.host.state import Folder, User
from tests.trees import put
from tests.unit.host.probed import state

PASSWD = """root:x:0:0:root:/root:/bin/bash
mpd:x:790:29:Music,,,:/var/lib/mpd:/usr/sbin/nologin
ktfleet:x:1001:1001::/home/ktfleet:
+::::::
broken
"""


def test_who_has_the_name_and_who_has_the_number(tree: Path) -> None:
    put(tree, "/etc/passwd", PASSWD)
    put(tree, "/etc/group", "audio:x:29:mpd,ktfleet\nktfleet:x:1001:\nother:x:790:\n")
    seen = state(tree, accounts=("ktfleet", "790"))
    assert seen.users == {
        "mpd": User(uid=790, gid=29, home="/var/lib/mpd", shell="/usr/sbin/nologin"),
        "ktfleet": User(uid=1001, gid=1001, home="/home/ktfleet", shell=""),
    }
    assert seen.groups == {"ktfleet": 1001, "other": 790}


@pytest.mark.parametrize("line", ["ktfleet:x:x:1::/:", "ktfleet:x:1:\N{ARABIC-INDIC DIGIT ONE}a::/:"])
def test_numbers_that_are_none_are_unreadable(tree: Path, line: str) -> None:
    put(tree, "/etc/passwd", line + "\n")
    seen = state(tree, accounts=("ktfleet",))
    assert seen.users is None
    assert seen.unreadable["/etc/passwd"].startswith("not a number")


def test_missing_files_have_their_reason(tree: Path) -> None:
    (tree / "etc/passwd").unlink()
    seen = state(tree, accounts=("ktfleet",))
    assert (seen.users, seen.groups, seen.unreadable["/etc/passwd"]) == (None, {}, "no such file")


def test_folders(tree: Path) -> None:
    (tree / "srv/models").mkdir(parents=True)
    (tree / "srv/models").chmod(0o750)
    put(tree, "/srv/file", "")
    seen = state(tree, folders=("/srv/models", "/srv/none", "/srv/file"))
    owner = Folder(uid=os.getuid(), gid=os.getgid(), mode="0750")
    assert seen.folders == {"/srv/models": owner, "/srv/none": None, "/srv/file": None}
    assert seen.unreadable["/srv/file"] == "not a folder"
    assert "/srv/none" not in seen.unreadable
