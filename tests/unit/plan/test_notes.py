from typing import Any

import pytest

from ktfleet.host.state import HostState, Swap
from ktfleet.plan.notes import notes
from tests.states import GIB, workstation


@pytest.mark.parametrize(("update", "line"), [
    ({"reboot_required": ("linux-image-amd64",)}, "a reboot is wanted there by linux-image-amd64: ktfleet reboots"),
    ({"clock_synchronised": False}, "the clock is not synchronised (yet)"),
    ({"swaps": (Swap(device="/dev/sda2", size=8 * GIB, used=3 * GIB // 2),)}, "1.5 GiB are swapped out"),
])  # fmt: skip
def test_each_note(update: dict[str, Any], line: str) -> None:
    (note,) = notes(workstation().model_copy(update=update))
    assert note.startswith(line)


def test_nothing_to_note() -> None:
    idle = {"clock_synchronised": True, "swaps": (Swap(device="/dev/sda2", size=8 * GIB, used=0),)}
    assert notes(workstation().model_copy(update=idle)) == ()
    assert notes(HostState(schema=1)) == ()
