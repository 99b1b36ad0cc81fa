"""Why weights cannot be got or kept on this host, judged before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ktfleet.config import Data, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.account import NUMBER
from ktfleet.plan.places import FSTAB
from ktfleet.plan.weights import fstab
from ktfleet.plan.weights.wanted import layout
from ktfleet.problem import Problem, Refused
from ktfleet.recipes import Recipe
from ktfleet.recipes.model import CONVERTED
from ktfleet.weights.folders import MARGIN, gb


def problems(state: HostState, config: Workstation, recipe: Recipe) -> tuple[Problem, ...]:
    """What is wrong with the data disk, and with what is to be put on it."""
    data = config.data
    disk = (*_missing(state, data), *_fstab(state, data), *_mounted(state, data)) if data else ()
    return (*disk, *_wanted(state, config, recipe))


def _missing(state: HostState, data: Data) -> Iterator[Problem]:
    """The disk is not there, or is the system's own."""
    if not data.mounted_by_us or data.device not in state.links:
        return
    link = state.links[data.device]
    do = "connect it, or correct data in the inventory (`lsblk -f` there lists the file systems)"
    if link is None:
        yield Problem("the data disk is missing", f"no {data.device}", f"a file system with {data.tag}", do)
        return
    root = state.mounts.get("/")
    if root and _same(link, root.device):
        seen = f"{data.tag} on {root.device}, which holds /"
        yield Problem("the data disk is the root file system", seen, "a disk that survives a reinstall", do)


def _same(link: str, device: str) -> bool:
    """Whether udev's link leads to the device of a mount. Mapped devices have another name there: not told."""
    return device.startswith("/dev/") and "/mapper/" not in device and PurePosixPath(link).name == device[5:]


def _differs(link: str, device: str) -> bool:
    mapped = PurePosixPath(link).name.startswith("dm-") or "/mapper/" in device
    return device.startswith("/dev/") and not mapped and not _same(link, device)


def _fstab(state: HostState, data: Data) -> Iterator[Problem]:
    text = state.texts.get(FSTAB)
    if not data.mounted_by_us or text is None:
        return
    if len(text.encode()) >= fstab.READ_LIMIT:
        do = f"mount the data disk yourself and leave uuid and label out, or shorten {FSTAB}"
        yield Problem(f"{FSTAB} is too long to be read", f"{fstab.READ_LIMIT} bytes", "less", do)
        return
    other = fstab.spec(text, data.mount)
    if other is not None and not fstab.mounts(text, data):
        do = f"remove that line from {FSTAB}, or correct data in the inventory"
        yield Problem(f"{FSTAB} mounts something else on {data.mount}", other, data.tag, do)


def _mounted(state: HostState, data: Data) -> Iterator[Problem]:
    """What is mounted there already. (On the root file system without uuid and label: plan/storage.py.)"""
    held = state.mounts.get(data.mount)
    if held is None or held.mount != data.mount:
        return
    link = state.links.get(data.device) if data.mounted_by_us else None
    if link is not None and _differs(link, held.device):
        do = f"`umount {data.mount}` there, or correct data in the inventory"
        yield Problem(f"another disk is mounted on {data.mount}", held.device, data.tag, do)
    elif held.read_only:
        do = "look for disk errors with `dmesg`, repair them, then remount it"
        yield Problem("the data disk is read-only", f"{held.device} mounted ro", "a writable one", do)
    elif data.mounted_by_us:
        yield from _owner(state, data)


def _owner(state: HostState, data: Data) -> Iterator[Problem]:
    """A fresh file system is root's: that is changed. Another owner's files are not touched."""
    folder = state.folders.get(data.mount)
    if folder is not None and folder.uid not in (0, NUMBER):
        yield Problem(*owner_problem(data, str(folder.uid)))


def owner_problem(data: Data, seen: str) -> tuple[str, str, str, str]:
    """The refusal's four parts, for the shell too."""
    do = f"if it is meant to hold the weights: `chown {NUMBER}:{NUMBER} {data.mount}` there"
    return ("the data disk belongs to somebody else", f"user {seen}", f"{NUMBER}, or root on a fresh one", do)


def _wanted(state: HostState, config: Workstation, recipe: Recipe) -> Iterator[Problem]:
    if config.weights is None:
        return
    if config.data is None:
        do = 'set data = {"label": ..., "mount": "/srv/models"}, or weights = None'
        yield Problem("weights without a data disk", "data = None", "where they are to lie", do)
    checkpoint = recipe.checkpoint
    if checkpoint is None:
        do = "add repository, revision (40 hex digits), bytes, converter_input and copied_bytes, or weights = None"
        yield Problem(f"the recipe {recipe.name} names no checkpoint", "no [checkpoint]", "a pinned one", do)
        return
    shards = 0
    if recipe.method in CONVERTED:
        try:
            shards = layout(recipe, config.hardware.sockets).total_bytes + checkpoint.copied_bytes
        except Refused as refused:
            yield from refused.problems
    held = state.mounts.get(config.data.mount) if config.data else None
    peak = checkpoint.bytes + shards + MARGIN
    if config.data and held and held.mount == config.data.mount and held.size is not None and held.size < peak:
        wanted = f"{gb(peak)} ({gb(checkpoint.bytes)} of checkpoint, {gb(shards)} converted)"
        yield Problem("the data disk is too small", f"{gb(held.size)} on {held.device}", wanted, "use a larger one")
