from typing import Any

import pytest

from ktfleet import plan, recipes
from ktfleet.config import Data, Workstation
from ktfleet.host.state import HostState, Mount, Packages
from ktfleet.plan.request import request
from ktfleet.plan.storage import MIB
from tests.states import workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def mounted(**changes: dict[str, Any]) -> HostState:
    """The workstation with other file systems: path (slashes as __) -> what differs."""
    state = workstation()
    mounts = dict(state.mounts)
    for path, update in changes.items():
        path = path.replace("__", "/")
        mounts[path] = (mounts.get(path) or mounts["/"]).model_copy(update=update)
    return state.model_copy(update={"mounts": mounts})


def refused(state: HostState, **config: Any) -> list[str]:
    return [str(problem) for problem in plan.make(state, Workstation(**config), RECIPE).refusals]


def test_a_read_only_root_is_one_problem() -> None:
    state = workstation()
    mounts = {path: mount.model_copy(update={"read_only": True}) for path, mount in state.mounts.items()}
    (line,) = refused(state.model_copy(update={"mounts": mounts}))
    assert line.startswith(
        "the file system of /, /boot, /etc, /opt, /usr/local, /var is read-only: seen /dev/nvme0n1p2 mounted ro on /, "
        "wanted a writable one; look for disk errors"
    )


def test_one_read_only_file_system_is_named() -> None:
    (line,) = refused(mounted(__etc={"mount": "/etc", "read_only": True}))
    assert line.startswith("the file system of /etc is read-only: seen /dev/nvme0n1p2 mounted ro on /etc")


@pytest.mark.parametrize(("free", "full"), [(0, True), (1023 * MIB, True), (1024 * MIB, False), (None, False)])
def test_a_full_root(free: int | None, full: bool) -> None:
    state = workstation()
    mounts = {path: mount.model_copy(update={"free": free}) for path, mount in state.mounts.items()}
    found = refused(state.model_copy(update={"mounts": mounts}), gpu=None, stack=None)
    assert bool(found) == full
    if full:
        assert found[0].startswith(
            f"too little free space on /: seen {(free or 0) // MIB} MiB, wanted at least 1024 MiB;"
        )


@pytest.mark.parametrize(("free", "installed", "full"), [
    (10 * 1024 * MIB, (), True), (11 * 1024 * MIB, (), False), (2 * 1024 * MIB, ("cuda-toolkit-12-9",), False),
])  # fmt: skip
def test_the_toolkit_needs_room_until_it_is_there(free: int, installed: tuple[str, ...], full: bool) -> None:
    state = workstation()
    mounts = {path: mount.model_copy(update={"free": free}) for path, mount in state.mounts.items()}
    packages = Packages(installed=dict.fromkeys(installed, "1"))
    found = refused(state.model_copy(update={"mounts": mounts, "packages": packages}), stack=None)
    assert [line.partition("; ")[0] for line in found] == [
        "too little free space on /: seen 10240 MiB, wanted at least 11264 MiB"
    ] * full


def test_a_full_boot_partition() -> None:
    (line,) = refused(mounted(__boot={"mount": "/boot", "free": 60 * MIB}))
    assert line.startswith("too little free space on /boot: seen 60 MiB, wanted at least 200 MiB;")


def test_a_data_folder_on_the_root_file_system() -> None:
    data = Data(mount="/srv/models")
    (line,) = refused(mounted(__srv__models={}), data=data)
    assert line.startswith(
        "the data folder resolves to the root file system: seen /srv/models on /dev/nvme0n1p2, "
        "wanted a disk that survives a reinstall; mount the data disk there"
    )
    assert refused(mounted(__srv__models={"mount": "/srv/models", "device": "/dev/sda1"}), data=data) == []


def test_a_data_folder_that_was_not_looked_at_is_unknown() -> None:
    made = plan.make(workstation(), Workstation(data=Data(mount="/srv/models")), RECIPE)
    assert [problem.what for problem in made.unknown] == ["the file system of /srv/models cannot be read"]


def test_the_probe_is_asked_for_the_data_folder() -> None:
    assert "/srv/models" in request(Workstation(data=Data(mount="/srv/models"))).mounts
    assert set(request().mounts) == set(workstation().mounts)


def test_file_systems_that_were_not_read_are_unknown() -> None:
    made = plan.make(workstation().model_copy(update={"mounts": {}}), Workstation(), RECIPE)
    assert made.refusals == ()
    assert made.unknown[0].what == "the file system of / cannot be read"


def test_a_mount_is_typed() -> None:
    assert Mount(mount="/", device="x", type="ext4", read_only=False).free is None
