"""What has to be done to a host for its weights: shell commands, as in plan/changes.py."""

from __future__ import annotations

from shlex import quote

from ktfleet.host import bundle
from ktfleet.host.state import HostState
from ktfleet.plan import Plan, account, apt, jobs
from ktfleet.plan.changes import Commands, place
from ktfleet.plan.files import File
from ktfleet.plan.places import CONVERT_UNIT, DOWNLOAD_UNIT, FSTAB, WEIGHTS, WEIGHTS_JOB, unit_file
from ktfleet.plan.shell import make_folder, stop
from ktfleet.plan.weights import fstab
from ktfleet.plan.weights.refusals import owner_problem
from ktfleet.plan.weights.wanted import downloaded, have_shards
from ktfleet.weights.job import Copy


def skipped(plan: Plan) -> str | None:
    """Why no weights are got, if so."""
    if plan.config.weights is None:
        return "no weights are got: the configuration says weights = None"
    return None


def not_converted(plan: Plan) -> str | None:
    """Why nothing is converted, if so."""
    job = plan.weights
    if job is None:
        return None
    if job.shards is None:
        return f"nothing is converted: {plan.recipe.method} reads the checkpoint itself"
    if job.converter is None:
        return "nothing is converted: the configuration says weights.converter = None"
    return None


def add_to_fstab(plan: Plan, state: HostState) -> Commands:
    """Add the line that mounts the data disk at boot, where there is none."""
    data, text = plan.config.data, state.texts.get(FSTAB)
    if data is None or not data.mounted_by_us or (text is not None and fstab.mounts(text, data)):
        return ()
    new = "/etc/.fstab.ktfleet-new"
    # A last line without its end would swallow ours.
    add = f"{{ cat {FSTAB}; [ -z \"$(tail -c 1 {FSTAB})\" ] || echo; printf '%s\\n' {quote(fstab.line(data))}; }}"
    keep_mode = f"chmod --reference={FSTAB} {new}"
    return (f"touch {FSTAB} && {add} >{new} && {keep_mode} && sync {new} && mv -f {new} {FSTAB}",)


def mount(plan: Plan, state: HostState) -> Commands:
    """Mount the data disk. It is never formatted, and nothing is hidden below it."""
    data = plan.config.data
    held = state.mounts.get(data.mount) if data else None
    if data is None or not data.mounted_by_us or (held and held.mount == data.mount):
        return ()
    where = quote(data.mount)
    full = f"{data.mount} is not empty and the data disk is not mounted there: seen files, wanted an empty folder; "
    full += "move them to the disk (`mount` it elsewhere first), then run this again"
    failed = "the data disk cannot be mounted: seen the message above, wanted it mounted; `dmesg` may say more"
    root = "the data disk is the root file system: seen the same device, wanted another; correct data in the inventory"
    same = f'[ "$(stat -c %d {where})" != "$(stat -c %d /)" ]'
    return (
        f'{make_folder(data.mount)} && {{ [ -z "$(ls -A {where})" ] || {{ {stop(full)}; }}; }}',
        f"systemctl daemon-reload && {{ mount {where} || {{ {stop(failed)}; }}; }}",
        f"{same} || {{ umount {where}; {stop(root)}; }}",
    )


def own(plan: Plan, state: HostState) -> Commands:
    """Give a fresh data disk to the service's user; leave everybody else's alone."""
    data = plan.config.data
    held = state.mounts.get(data.mount) if data else None
    folder = state.folders.get(data.mount) if data else None
    mounted = held is not None and data is not None and held.mount == data.mount
    if data is None or not data.mounted_by_us or not mounted or folder is None or folder.uid == account.NUMBER:
        return ()
    if folder.uid != 0:
        what, seen, wanted, do = owner_problem(data, str(folder.uid))
        return (stop(f"{what}: seen {seen}, wanted {wanted}; {do}"),)
    return (f"chown {account.NUMBER}:{account.NUMBER} {quote(data.mount)}",)


def install_tools(plan: Plan, state: HostState) -> Commands:
    """git for the converter, rsync for copies: where they are missing and needed."""
    job = plan.weights
    if job is None:
        return ()
    needed = {"rsync": isinstance(job.source, Copy), "git": job.converter is not None and not have_shards(job, state)}
    missing = [name for name, wanted in needed.items() if wanted and name not in state.packages.installed]
    return (apt.install(*missing),) if missing else ()


place_files = place(WEIGHTS_JOB, unit_file(DOWNLOAD_UNIT), unit_file(CONVERT_UNIT), then="systemctl daemon-reload")


def prepare(plan: Plan, state: HostState) -> Commands:
    """The program, what it has to get, and the units that run it."""
    placed = jobs.place_program(program(), state) if plan.weights else ()
    return (*placed, *place_files(plan, state))


def program() -> File:
    """The program as it is placed."""
    return jobs.program(WEIGHTS, bundle.WEIGHTS)


def nothing_to_download(plan: Plan, state: HostState) -> bool:
    """Whether all that the source is to give is on the host and proven."""
    return plan.weights is None or downloaded(plan.weights, state)


def nothing_to_convert(plan: Plan, state: HostState) -> bool:
    """Whether converted weights are on the host and proven, or none are to be made."""
    job = plan.weights
    return job is None or job.converter is None or have_shards(job, state)


def start_download(plan: Plan, state: HostState) -> Commands:
    """Start what gets the weights, unless they are there or it is at work."""
    if nothing_to_download(plan, state) or jobs.at_work(DOWNLOAD_UNIT, state):
        return ()
    return (*_token_is_private(plan), jobs.start(DOWNLOAD_UNIT))


def start_conversion(plan: Plan, state: HostState) -> Commands:
    """Start the converter, unless its work is done or it is at work."""
    if nothing_to_convert(plan, state) or jobs.at_work(CONVERT_UNIT, state):
        return ()
    return (jobs.start(CONVERT_UNIT),)


def _token_is_private(plan: Plan) -> Commands:
    path = plan.hub_token_file
    if path is None:
        return ()
    line = f", wanted a file of root's with mode 600; put the token there and `chmod 600 {path}`"
    seen = f"seen=$(stat -c '%U %a' {quote(path)} 2>/dev/null || echo no file)"
    public = stop(f"the hub's token {path} is not private", "seen", line)
    return (f'{seen}; [ "$seen" = "root 600" ] || {{ {public}; }}',)
