"""Verdicts: the only place that judges. Pure: a plan and a state in, verdicts out.

pass, fail, skipped (not applicable here, for a reason that the table knows), or inconclusive (it could not be
measured). Only pass and skipped let a run succeed: what cannot be measured is never a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, cast

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, account, command_line, readback
from ktfleet.plan.claim import Claim
from ktfleet.plan.files import File, paths, render
from ktfleet.plan.overlay import proven as overlay_proven
from ktfleet.plan.places import (
    BOOT_UNIT_ENABLED,
    DPKG_STATUS,
    FRONT_ENABLED,
    PERSISTENCED_ENABLED,
    POWER_LIMIT_ENABLED,
    SERVER_ENABLED,
)
from ktfleet.plan.row import Setting, Writer
from ktfleet.plan.server import changes as server
from ktfleet.plan.server import proven as server_proven
from ktfleet.plan.stack import changes as stack
from ktfleet.plan.stack import proven as stack_proven
from ktfleet.plan.weights import changes as weights
from ktfleet.plan.weights import proven

Result = Literal["pass", "fail", "inconclusive", "skipped"]


@dataclass(frozen=True)
class Verdict:
    """One judged thing.

    `why` is the reason of the wanted value, or of a skipped or inconclusive result; `do` is what helps a fail.
    """

    key: str
    result: Result
    seen: str
    wanted: str
    why: str
    do: str = "run deploy.py again"

    @property
    def good(self) -> bool:
        """Whether a run may succeed with it."""
        return self.result in ("pass", "skipped")

    @property
    def difference(self) -> str:
        """What was seen and what is wanted, without the reasons."""
        return f"{self.key}: seen {self.seen}, wanted {self.wanted}"

    def __str__(self) -> str:
        if self.result == "fail":
            return f"{self.difference}; {self.do}. Why: {self.why}"
        if self.result == "pass":
            return f"{self.key}: {self.seen}"
        if self.result == "inconclusive":
            return f"{self.difference}; inconclusive, {self.why}: repair that, then run this again"
        return f"{self.key}: {self.result}, {self.why}"


def drift(plan: Plan, state: HostState | None) -> tuple[Verdict, ...]:
    """Every setting and every managed file of the plan, compared with the running host."""
    if state is None:
        return (Verdict("host", "inconclusive", "nothing", "the probe's answer", "the host could not be probed"),)
    return (
        *(_setting(setting, state) for setting in plan.settings),
        *filter(None, (_taken_back(setting, state) for setting in plan.not_asked_for)),
        *(_file(render(plan, path), state) for path in paths()),
        *(_enabled(link, why, state) for link, why in _links(plan)),
        *_packages(plan, state),
        _account(state),
        *_jobs(plan, state),
    )


def unfinished() -> tuple[Verdict, ...]:
    """What is known of a host between the first change of a run and the run's own check: nothing."""
    why = "a run changed this host and has not reached its check"
    return (Verdict("every setting", "inconclusive", "nothing", "the check at the end of a run", why),)


def summary(verdicts: tuple[Verdict, ...]) -> str:
    """One line: how many of each result, bad ones first."""
    counts = Counter(verdict.result for verdict in verdicts)
    order: tuple[Result, ...] = ("fail", "inconclusive", "skipped", "pass")
    return ", ".join(f"{counts[result]} {result}" for result in order if counts[result]) or "nothing was checked"


def _setting(setting: Setting, state: HostState) -> Verdict:
    row, seen = setting.row, readback.values(setting.row, state)
    wrong = {place: value for place, value in seen.items() if not setting.holds(value)}
    if wrong:
        return Verdict(setting.key, "fail", _places(wrong, len(seen)), setting.wanted, row.why, _remedy(setting, state))
    gap = _gap(setting, state)
    if gap:
        return Verdict(setting.key, "inconclusive", "nothing", setting.wanted, gap)
    if row.writer is Writer.CMDLINE:
        return _command_line(setting, state, running=bool(seen))
    if seen:
        return Verdict(setting.key, "pass", min(seen.values()), setting.wanted, row.why)
    if row.absent and row.absent_if(setting.wanted):
        return Verdict(setting.key, "skipped", "not there", setting.wanted, row.absent)
    return Verdict(setting.key, "fail", "no such setting on this host", setting.wanted, row.why)


def _gap(setting: Setting, state: HostState) -> str | None:
    """Why too little was read for a verdict."""
    unread, missing = readback.unread(setting.row, state), readback.missing(setting.row, state)
    if unread:
        return f"it could not be read: {unread}"
    if missing:
        return f"it is missing in {len(missing)} places that should have it, as {missing[0]}"
    if setting.row.writer is Writer.CMDLINE and state.boot.next_cmdline is None:
        return "what the next boot gets could not be read"
    return None


def _command_line(setting: Setting, state: HostState, running: bool) -> Verdict:
    """It has to run now, and at the next boot too."""
    wanted, why, do = setting.wanted, setting.row.why, _remedy(setting, state)
    if not running:
        return Verdict(setting.key, "fail", "nothing in /proc/cmdline", wanted, why, do)
    if command_line.overridden((setting,), state):
        return Verdict(setting.key, "fail", f"{wanted} now, but not in the generated grub.cfg", wanted, why, do)
    return Verdict(setting.key, "pass", wanted, wanted, why)


def _remedy(setting: Setting, state: HostState) -> str:
    """What helps; for the command line it depends on where the value got lost."""
    if setting.row.writer is not Writer.CMDLINE:
        return setting.row.remedy
    overridden = command_line.overridden((setting,), state)
    if overridden:
        return overridden[0].do
    return "run deploy.py again; if it stays, the machine boots another entry than grub.cfg's first: see GRUB_DEFAULT"


def _taken_back(setting: Setting, state: HostState) -> Verdict | None:
    """An opt-in that was taken back must be gone, if it was ktfleet that set it."""
    running = command_line.parameter(state.kernel.cmdline, setting.key)
    lingering = command_line.lingering((setting,), state)
    if not lingering and not command_line.ours(setting, running, state):
        return None
    wanted, why = "what it was before ktfleet", "kernel_command_line does not ask for it"
    if state.boot.next_cmdline is None:
        reason = "what the next boot gets could not be read"
        return Verdict(setting.key, "inconclusive", f"{running} in /proc/cmdline", wanted, reason)
    seen = f"{running} in /proc/cmdline" if not lingering else "ktfleet's value in the generated grub.cfg"
    files = ", ".join(state.boot.drop_ins) or "/etc/default/grub"
    do = f"run deploy.py again; if it stays, remove it from {files}, or list it in kernel_command_line"
    return Verdict(setting.key, "fail", seen, wanted, why, do)


def _places(wrong: dict[str, str], all_places: int) -> str:
    if all_places == 1:
        return next(iter(wrong.values()))
    place, value = next(iter(wrong.items()))
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"{value} at {place}{more} (of {all_places})"


def _file(file: File, state: HostState) -> Verdict:
    why = "a changed file would be applied at the next boot"
    wanted = "our content" if file.sha256 else "no such file"
    unread = readback.unread_file(file.path, state)
    if unread:
        return Verdict(file.path, "inconclusive", "nothing", wanted, f"it could not be read: {unread}")
    seen = state.files[file.path]
    if seen == file.sha256:
        return Verdict(file.path, "pass", wanted, wanted, why)
    return Verdict(file.path, "fail", "other content" if seen else "no such file", wanted, why)


def _jobs(plan: Plan, state: HostState) -> Iterator[Verdict]:
    """What units of the host have brought there, and the programs that they run."""
    if plan.weights is not None:
        yield _file(weights.program(), state)
    if plan.stack is not None:
        yield _file(stack.program(), state)
    if plan.server is not None:
        yield _file(server.program(), state)
    found = (proven.claims, stack_proven.claims, overlay_proven.claims, server_proven.claims)
    yield from map(claimed, chain.from_iterable(claims(plan, state) for claims in found))


def claimed(claim: Claim) -> Verdict:
    """The verdict on a claim."""
    result: Result = "inconclusive" if claim.good is None else "pass" if claim.good else "fail"
    return Verdict(claim.key, result, claim.seen, claim.wanted, claim.why)


def _links(plan: Plan) -> Iterator[tuple[str, str]]:
    """The links by which systemd starts our units at boot, and why each has to be there."""
    yield BOOT_UNIT_ENABLED, "without it the sysfs settings are lost at the next boot"
    if plan.driver is not None:
        yield PERSISTENCED_ENABLED, "without it the driver forgets the card's state whenever nobody uses it"
        if plan.driver.wanted.power_limit_w is not None:
            yield POWER_LIMIT_ENABLED, "without it the power limit is lost at the next boot"
    if plan.server is not None:
        yield SERVER_ENABLED, "without it nothing is served after the next boot"
    if plan.fronted:
        yield FRONT_ENABLED, "without it clients reach no server after the next boot"


def _enabled(link: str, why: str, state: HostState) -> Verdict:
    unread = readback.unread_link(link, state)
    if unread:
        return Verdict(link, "inconclusive", "nothing", "enabled", f"it could not be read: {unread}")
    enabled = state.links[link] is not None
    seen, result = ("enabled", "pass") if enabled else ("not enabled", "fail")
    return Verdict(link, cast(Result, result), seen, "enabled", why)


def _packages(plan: Plan, state: HostState) -> Iterator[Verdict]:
    """The packages of driver and toolkit: all of them or, without a wanted card, no word of them."""
    if plan.driver is None:
        return
    key, wanted = "packages of driver and toolkit", "all installed"
    why = "they are installed together, so that kernel, headers, module and libraries fit each other"
    if DPKG_STATUS in state.unreadable or state.packages.interrupted is None:
        reason = state.unreadable.get(DPKG_STATUS, "nothing was read of dpkg")
        yield Verdict(key, "inconclusive", "nothing", wanted, f"it could not be read: {reason}")
        return
    missing = [name for name in plan.driver.packages if name not in state.packages.installed]
    unfinished = list(state.packages.unfinished)
    if missing or unfinished:
        parts = (("no", missing), ("half installed", unfinished))
        seen = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
        yield Verdict(key, "fail", seen, wanted, why)
    else:
        yield Verdict(key, "pass", f"{len(plan.driver.packages)} installed", wanted, why)


def _account(state: HostState) -> Verdict:
    key, wanted = f"account {account.ACCOUNT}", f"{account.WANTED}, its home its own"
    why = "the server runs as it, and the data disk keeps files of its numbers over a reinstall"
    gap = next((problem.seen for problem in account.unread(state)), None) or state.unreadable.get(account.HOME)
    if gap:
        return Verdict(key, "inconclusive", "nothing", wanted, f"it could not be read: {gap}")
    wrong = account.differences(state)
    return Verdict(key, "fail" if wrong else "pass", "; ".join(wrong) or wanted, wanted, why)
