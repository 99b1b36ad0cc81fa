"""What has to be done to a host: shell commands for each difference between its plan and its state.

Pure text; pyinfra runs them as root. Every value is quoted, every file is replaced atomically. An empty
tuple means that nothing differs: a converged host gets no command at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePosixPath
from shlex import quote

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, command_line, readback
from ktfleet.plan.files import File, render
from ktfleet.plan.places import (
    BEFORE,
    BOOT_UNIT,
    BOOT_UNIT_ENABLED,
    BOOT_UNIT_PATH,
    COMMAND_LINE,
    SYSFS,
    WRITE_SYSFS,
)
from ktfleet.plan.settings import Concern, Setting, Writer

Commands = tuple[str, ...]
Change = Callable[[Plan, HostState], Commands]


def place(*paths: str) -> Change:
    """Write the files whose content differs."""

    def commands(plan: Plan, state: HostState) -> Commands:
        files = (render(plan, path) for path in paths)
        return tuple(_write(file) for file in files if state.files.get(file.path) != file.sha256)

    return commands


def enable_boot_unit(plan: Plan, state: HostState) -> Commands:
    """Write the unit that applies the sysfs settings at boot, and enable it."""
    written = place(BOOT_UNIT_PATH)(plan, state)
    if not written and state.links.get(BOOT_UNIT_ENABLED) is not None:
        return ()
    return (*written, f"systemctl daemon-reload && systemctl enable -q {BOOT_UNIT}")


def set_values(concern: Concern) -> Change:
    """Set the running values that differ."""

    def commands(plan: Plan, state: HostState) -> Commands:
        def differing(writer: Writer) -> list[Setting]:
            return [s for s in plan.of(writer, concern) if readback.differs(s, state)]

        sysctls = [quote(f"{s.key}={s.wanted}") for s in differing(Writer.SYSCTL)]
        masks = [quote(s.key) for s in differing(Writer.MASK)]
        return (
            *([" ".join(("sysctl -q -w", *sysctls))] if sysctls else ()),
            *([f"{WRITE_SYSFS} {SYSFS[concern]}"] if differing(Writer.SYSFS) else ()),
            *([" ".join(("systemctl -q mask", *masks))] if masks else ()),
        )

    return commands


def write_command_line(plan: Plan, state: HostState) -> Commands:
    """Write GRUB's drop-in and regenerate grub.cfg. When that fails, the old drop-in is put back."""
    file = render(plan, COMMAND_LINE)
    stale = (*command_line.overridden(plan.settings, state), *command_line.lingering(plan.not_asked_for, state))
    if state.files.get(file.path) == file.sha256 and not stale:
        return ()
    path, old = quote(file.path), quote(f"{file.path}.ktfleet-old")
    keep = f"rm -f {old}; if [ -e {path} ]; then cp -p {path} {old}; fi"
    put_back = f"if [ -e {old} ]; then mv -f {old} {path}; else rm -f {path}; fi"
    line = "update-grub failed: seen its messages above, wanted a new grub.cfg; repair that (the old drop-in is back)"
    complain = f"echo {quote(line)} >&2"
    update = f"if update-grub; then rm -f {old}; else {put_back}; {complain}; exit 1; fi"
    return (f"{keep}; {_write(file)} && {update}",)


def remember(plan: Plan, state: HostState) -> Commands:
    """Record the present value of every setting that has no record yet: before anything is changed."""
    present = {s.key: dict(readback.values(s.row, state)) for s in plan.settings if s.key not in state.before}
    if not present:
        return ()
    content = json.dumps({**state.before, **present}, indent=1, sort_keys=True) + "\n"
    return (_write(File(BEFORE, content, "0600")),)


def _write(file: File) -> str:
    """Under a temporary name beside it, then renamed. A file without content is removed."""
    if file.content is None:
        return f"rm -f {quote(file.path)}"
    target = PurePosixPath(file.path)
    # A leading dot: sysctl.d and grub.d pass over it if the connection is cut here.
    temporary = quote(str(target.with_name(f".{target.name}.ktfleet-new")))
    write = f"printf %s {quote(file.content)} > {temporary}"
    steps = (
        f"mkdir -p {quote(str(target.parent))}",
        write,
        f"chmod {file.mode} {temporary}",
        f"sync {temporary}",
        f"mv -f {temporary} {quote(file.path)}",
    )
    return " && ".join(steps)
