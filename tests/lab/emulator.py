"""qemu, started again when the machine reboots, when qemu crashes, and when a boot stands still.

Run as a program, so that it can outlive the tests: python emulator.py CONSOLE SECONDS QEMU ARGUMENT...

A reboot ends qemu (-no-reboot), and it is started anew: after a warm reset the emulator of QEMU 7.2 stalls for minutes
("soft lockup - CPU#4 stuck for 74s"), where a cold start takes one. Rarely a cold start stands still for good, too,
before the first process of the machine runs. So a boot that does not ask for a login within SECONDS is ended as pulling
the plug does, and started again with twice the time; the third one may take as long as it likes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

LOGIN = b" login: "  # the last word of a boot on the console, of Debian 12 and 13
BOOTS_WITH_A_LIMIT = 2
ENDING_SECONDS = 10.0
LOOK_SECONDS = 0.5


def main(console: Path, seconds: float, qemu: list[str]) -> int:
    """Run qemu until the machine is switched off; returns qemu's exit status."""
    stalls = 0
    while True:
        limit = seconds * 2**stalls if stalls < BOOTS_WITH_A_LIMIT else None
        code = boot(console, limit, qemu)
        if code is None:
            stalls += 1
            print(f"a boot stood still: seen no login after {limit:.0f} s, started again", file=sys.stderr, flush=True)
        elif 0 < code < 128:  # qemu's own complaint
            return code
        elif code == 0:
            stalls = 0


def boot(console: Path, limit: float | None, qemu: list[str]) -> int | None:
    """One run of qemu: its exit status, or None if the boot did not get to the login in `limit` seconds."""
    start, before = time.monotonic(), _size(console)
    process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *qemu])
    while limit is not None and process.poll() is None and not _asks_for_a_login(console, before):
        if time.monotonic() - start > limit:
            _end(process)
            return None
        time.sleep(LOOK_SECONDS)
    return process.wait()


def _asks_for_a_login(console: Path, before: int) -> bool:
    with suppress(OSError), console.open("rb") as said:
        said.seek(before)
        return LOGIN in said.read()
    return False


def _size(console: Path) -> int:
    with suppress(OSError):
        return console.stat().st_size
    return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(ENDING_SECONDS)
        return
    process.kill()
    process.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
