"""What the probe has to read on a host: derived from the settings table and the templates."""

from __future__ import annotations

from dataclasses import dataclass

from ktfleet.plan import files
from ktfleet.plan.places import BEFORE, BOOT_UNIT_ENABLED, unit_file
from ktfleet.plan.row import Writer
from ktfleet.plan.settings import READ_TOO, TABLE


@dataclass(frozen=True)
class Request:
    """The arguments of `probe.collect`: names, patterns and paths on the host."""

    sysctl: tuple[str, ...]
    sysfs: tuple[str, ...]
    files: tuple[str, ...]
    links: tuple[str, ...]
    before: str


def request() -> Request:
    """Everything that a plan, its changes and its verdicts look at."""

    def keys(writer: Writer) -> tuple[str, ...]:
        return tuple(row.key for row in TABLE if row.writer is writer)

    return Request(
        sysctl=keys(Writer.SYSCTL),
        sysfs=(*keys(Writer.SYSFS), *READ_TOO),
        files=files.paths(),
        links=(*map(unit_file, keys(Writer.MASK)), BOOT_UNIT_ENABLED),
        before=BEFORE,
    )
