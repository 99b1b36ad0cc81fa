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
from ktfleet.plan import Plan, apt, command_line, readback
from ktfleet.plan.files import File, render
from ktfleet.plan.places import (
    BEFORE,
    BEFORE_FILES,
    BOOT_UNIT,
    BOOT_UNIT_ENABLED,
    BOOT_UNIT_PATH,
    COMMAND_LINE,
    COMPACT_MEMORY,
    IRQBALANCE,
    IRQBALANCE_ENVIRONMENT,
    IRQBALANCE_UNIT,
    JOURNALD,
    LATENCY_UNIT,
    SERVER_HOST,
    SYSFS,
    WRITE_SYSFS,
)
from ktfleet.plan.request import looked_at
from ktfleet.plan.row import Concern, Setting, Writer
from ktfleet.plan.shell import make_folder

Commands = tuple[str, ...]
Change = Callable[[Plan, HostState], Commands]

FILES = "files"
"""The record's key for files; every other one is a setting's."""


def place(*paths: str, then: str | None = None) -> Change:
    """Write the files whose content differs; if there were any, run `then`."""

    def commands(plan: Plan, state: HostState) -> Commands:
        files = (render(plan, path) for path in paths)
        written = tuple(write(file) for file in files if state.files.get(file.path) != file.sha256)
        return (*written, then) if written and then else written

    return commands


def configure(writer: Writer, *paths: str, then: str) -> Change:
    """Write the files that differ; run `then` if there were any, or if a setting of theirs is not in effect."""

    def commands(plan: Plan, state: HostState) -> Commands:
        written = place(*paths)(plan, state)
        stale = any(readback.differs(setting, state) for setting in plan.of(writer))
        return (*written, then) if written or stale else ()

    return commands


balance_interrupts = configure(
    Writer.IRQBALANCE,
    IRQBALANCE,
    IRQBALANCE_ENVIRONMENT,
    then=f"systemctl daemon-reload && if systemctl -q is-active {IRQBALANCE_UNIT}; then "
    f"systemctl restart {IRQBALANCE_UNIT}; fi",
)
"""Keep irqbalance, where it runs, off the worker CPUs."""

limit_journal = configure(Writer.JOURNALD, JOURNALD, then="systemctl restart systemd-journald")
"""Set the journal's size."""

prepare_server = place(COMPACT_MEMORY, LATENCY_UNIT, SERVER_HOST, then="systemctl daemon-reload")
"""Place what the host adds to the server's unit, whether that is there yet or not."""


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
        services = [_enable(s.key) for s in differing(Writer.ENABLED)]
        return (
            *([" ".join(("sysctl -q -w", *sysctls))] if sysctls else ()),
            *([f"{WRITE_SYSFS} {SYSFS[concern]}"] if differing(Writer.SYSFS) else ()),
            *([" ".join(("systemctl -q mask", *masks))] if masks else ()),
            *services,
        )

    return commands


def _enable(unit: str) -> str:
    """Install a service whose package bears its name, where it is missing; enable and start it."""
    package = quote(unit.removesuffix(".service"))
    install = f"{apt.APT} update && {apt.ENVIRONMENT} {apt.APT} install -y {package} >/dev/null"
    return f"{{ systemctl cat {quote(unit)} >/dev/null 2>&1 || {{ {install}; }}; }} && systemctl -q enable --now {unit}"


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
    return (f"{keep}; {write(file)} && {update}",)


def remember(plan: Plan, state: HostState) -> Commands:
    """Record what is there before anything is changed: every setting's value, and the files that will be replaced.

    What has a record keeps it. A file's record is its sha256 (null: there was none), its content a copy.
    """
    values = {s.key: dict(readback.values(s.row, state)) for s in plan.settings if s.key not in state.before}
    kept = state.before.get(FILES)
    known = kept if isinstance(kept, dict) else {}
    unmanaged = looked_at(plan.config)
    files = {path: digest for path, digest in state.files.items() if path not in known and path not in unmanaged}
    if not values and not files:
        return ()
    record = {**state.before, **values, FILES: {**known, **files}}
    content = json.dumps(record, indent=1, sort_keys=True) + "\n"
    copies = (_keep(path) for path, digest in files.items() if digest is not None)
    return (*copies, write(File(BEFORE, content, "0600")))


def _keep(path: str) -> str:
    copy = PurePosixPath(f"{BEFORE_FILES}{path}")
    return f"{make_folder(str(copy.parent))} && cp -p {quote(path)} {quote(str(copy))}"


def write(file: File) -> str:
    """Under a temporary name beside it, then renamed. A file without content is removed."""
    if file.content is None:
        return f"rm -f {quote(file.path)}"
    target = PurePosixPath(file.path)
    # A leading dot: sysctl.d and grub.d pass over it if the connection is cut here.
    temporary = quote(str(target.with_name(f".{target.name}.ktfleet-new")))
    write = f"printf %s {quote(file.content)} > {temporary}"
    steps = (
        make_folder(str(target.parent)),
        write,
        f"chmod {file.mode} {temporary}",
        f"sync {temporary}",
        f"mv -f {temporary} {quote(file.path)}",
    )
    return " && ".join(steps)
