"""The account that serves: user and group with fixed numbers, so that a data disk knows its owner after a reinstall."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import join
from typing import TYPE_CHECKING

from ktfleet.host.state import HostState, User
from ktfleet.plan.shell import make_folder
from ktfleet.problem import Problem

if TYPE_CHECKING:
    from ktfleet.plan import Plan

ACCOUNT = "ktfleet"
"""Of the user and of its group."""

NUMBER = 790
"""uid and gid. Below 1000 as Debian's system accounts, and out of the way of packages: they count down from 999."""

HOME = "/var/lib/ktfleet/home"
"""Caches of what the server compiles lie here."""

SHELL = "/usr/sbin/nologin"
HOME_MODE = "0750"
ASKED = (ACCOUNT, str(NUMBER))
"""What the probe looks for: who has the name, and who has the number."""

WANTED = User(uid=NUMBER, gid=NUMBER, home=HOME, shell=SHELL)

_PASSWD, _GROUP = "/etc/passwd", "/etc/group"


def problems(state: HostState) -> Iterator[Problem]:
    """The name or a number belongs to somebody else."""
    users = {name: user.uid for name, user in (state.users or {}).items()}
    yield from _taken("user", "uid", users)
    yield from _taken("group", "gid", state.groups or {})


def unread(state: HostState) -> Iterator[Problem]:
    """Without the lists of accounts nobody knows whose the name is."""
    for path, seen in ((_PASSWD, state.users), (_GROUP, state.groups)):
        if seen is None:
            reason = state.unreadable.get(path, state.unreadable.get("probe", "nothing"))
            do = "probe the host as root; a captured tree has to hold it"
            yield Problem(f"the accounts in {path} cannot be read", reason, "a value", do)


def create(plan: Plan, state: HostState) -> tuple[str, ...]:
    """Make group, user and home folder, or correct them."""
    user = (state.users or {}).get(ACCOUNT)
    folder = state.folders.get(HOME)
    home = (folder.uid, folder.gid, folder.mode) if folder else None
    commands = [join(("groupadd", "--system", "--gid", str(NUMBER), ACCOUNT))] if not _has_group(state) else []
    options = ("--gid", str(NUMBER), "--home", HOME, "--shell", SHELL)
    if user is None:
        commands.append(join(("useradd", "--system", "--uid", str(NUMBER), *options, "--no-create-home", ACCOUNT)))
    elif user != WANTED:
        commands.append(join(("usermod", *options, ACCOUNT)))
    if home != (NUMBER, NUMBER, HOME_MODE):
        owner = ("-o", str(NUMBER), "-g", str(NUMBER))
        parent = make_folder(HOME.rpartition("/")[0])
        commands.append(f"{parent} && {join(('install', '-d', '-m', HOME_MODE, *owner, HOME))}")
    return tuple(commands)


def differences(state: HostState) -> tuple[str, ...]:
    """What is not as wanted, in words: for the check. Empty: all is."""
    user, folder = (state.users or {}).get(ACCOUNT), state.folders.get(HOME)
    found = [] if _has_group(state) else ["no group"]
    found += ["no user"] if user is None else [f"user {user}"] if user != WANTED else []
    if folder is None or (folder.uid, folder.gid, folder.mode) != (NUMBER, NUMBER, HOME_MODE):
        found.append(f"home {folder}" if folder else "no home folder")
    return tuple(found)


def _has_group(state: HostState) -> bool:
    return (state.groups or {}).get(ACCOUNT) == NUMBER


def _taken(kind: str, number: str, seen: dict[str, int]) -> Iterator[Problem]:
    wanted = f"{ACCOUNT} with {number} {NUMBER}"
    for name, value in sorted(seen.items()):
        if name == ACCOUNT and value != NUMBER:
            do = f"rename that {kind} (`sudo {kind}mod -{'l' if kind == 'user' else 'n'} NEW {ACCOUNT}`) or remove it"
            yield Problem(f"the {kind} {ACCOUNT} is somebody else's", f"{number} {value}", f"{number} {NUMBER}", do)
        elif name != ACCOUNT and value == NUMBER:
            do = f"give {name} another one (`sudo {kind}mod -{number[0]} NEW {name}`)"
            yield Problem(f"the {number} {NUMBER} is somebody else's", name, wanted, do)
