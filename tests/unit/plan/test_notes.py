from typing import Any

import pytest

from ktfleet.config import Server, Workstation
from ktfleet.host.state import HostState, Swap
from ktfleet.plan.notes import notes
from tests.states import GIB, workstation


@pytest.mark.parametrize(("update", "line"), [
    ({"reboot_required": ("linux-image-amd64",)}, "a reboot is wanted there by linux-image-amd64: ktfleet reboots"),
    ({"clock_synchronised": False}, "the clock is not synchronised (yet)"),
    ({"swaps": (Swap(device="/dev/sda2", size=8 * GIB, used=3 * GIB // 2),)}, "1.5 GiB are swapped out"),
])  # fmt: skip
def test_each_note(update: dict[str, Any], line: str) -> None:
    (note,) = notes(workstation().model_copy(update=update), Workstation())
    assert note.startswith(line)


def test_nothing_to_note() -> None:
    idle = {"clock_synchronised": True, "swaps": (Swap(device="/dev/sda2", size=8 * GIB, used=0),)}
    assert notes(workstation().model_copy(update=idle), Workstation()) == ()
    assert notes(HostState(schema=1), Workstation()) == ()


def test_a_public_address_is_not_served_yet() -> None:
    config = Workstation(server=Server(host="0.0.0.0", api_key_file="/root/key"))
    (note,) = notes(workstation(), config)
    assert note.startswith("server.host is 0.0.0.0: the server itself listens on 127.0.0.1 only")
