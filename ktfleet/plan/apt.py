"""apt and dpkg as a change calls them: nobody is asked, another one at work is waited for, our files are kept."""

from __future__ import annotations

from shlex import join, quote

from ktfleet.host.state import HostState
from ktfleet.plan import Plan

LOCK_S = 600
"""How long apt waits for another one to finish: a fresh system's first updates take minutes."""

ENVIRONMENT = "DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a"
APT = f"apt-get -qq -o DPkg::Lock::Timeout={LOCK_S} -o Acquire::Retries=3"
KEEP_CONFIGURATION = "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"

_LINE = (
    "an interrupted installation cannot be finished: seen the messages above, wanted every package installed or gone; "
    "repair it there (`sudo dpkg --audit` names the packages), then run this again"
)


def install(*packages: str) -> str:
    """The command that installs them."""
    return f"{APT} update && {ENVIRONMENT} {APT} install -y --no-install-recommends {join(packages)} >/dev/null"


def finish_installation(plan: Plan, state: HostState) -> tuple[str, ...]:
    """Finish what dpkg was interrupted in, by a cut connection or a reset: nothing can be installed beside it."""
    if not state.packages.interrupted and not state.packages.unfinished:
        return ()
    configure = f"{ENVIRONMENT} dpkg --force-confdef --force-confold --configure -a >/dev/null"
    # Only when that was not enough, since it may have to fetch something: what was cut while it was unpacked.
    fix = f"{ENVIRONMENT} {APT} -y {KEEP_CONFIGURATION} --no-remove --fix-broken install >/dev/null"
    unfinished = '[ -n "$(dpkg --audit)" ]'
    return (f"{configure}; if {unfinished}; then {fix}; fi; ! {unfinished} || {{ echo {quote(_LINE)} >&2; exit 1; }}",)
