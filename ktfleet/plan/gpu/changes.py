"""What has to be done to a host for its card: shell commands, as in plan/changes.py.

Order matters: the pin and the key before the repository, the simulation before the installation, the module before
what needs it. Without a wanted card each of these only takes back what an earlier configuration placed.
"""

from __future__ import annotations

from shlex import join, quote

from ktfleet.host.state import HostState
from ktfleet.plan import Plan, reboot
from ktfleet.plan.apt import APT, ENVIRONMENT, KEEP_CONFIGURATION
from ktfleet.plan.changes import Commands, place
from ktfleet.plan.gpu.packages import KEYRING_IN_DEB
from ktfleet.plan.gpu.wanted import Installation, older, stand_ins, upstream
from ktfleet.plan.places import (
    NOUVEAU_BLACKLIST,
    NVIDIA_PIN,
    NVIDIA_SOURCE,
    PERSISTENCED,
    PERSISTENCED_ENABLED,
    PERSISTENCED_UNIT,
    POWER_LIMIT,
    POWER_LIMIT_ENABLED,
    POWER_LIMIT_UNIT,
)
from ktfleet.plan.shell import stop

APT_HELPER = "/usr/lib/apt/apt-helper"
"""apt's own downloader: it goes the way (proxy, certificates) that apt-get will go."""

_LOADED = "[ -e /proc/driver/nvidia/version ]"


def skipped(plan: Plan) -> str | None:
    """Why nothing is installed for a card, if so."""
    if plan.config.gpu is None:
        return "no driver is installed: the configuration says gpu = None"
    return None


def fetch_keyring(plan: Plan, state: HostState) -> Commands:
    """Get the repository's key out of NVIDIA's package, once that is the one that the table knows."""
    made = plan.driver
    if made is None or state.files.get(made.keyring) is not None:
        return ()
    url, wanted, path = made.keyring_url, made.keyring_sha256, made.keyring
    what = "the keyring of NVIDIA's repository"
    no_file = f"{what}: seen no file at {url}, wanted it; repair the way there, or set gpu.repository to a mirror"
    no_key = f"{what}: seen no {KEYRING_IN_DEB} in it, wanted one; run this again with a newer ktfleet"
    other = f", wanted {wanted}; compare {url} with NVIDIA's own, do not go on before they are equal"
    new = quote(path.replace("/ktfleet-", "/.ktfleet-") + ".new")
    download = f'{APT_HELPER} -qq -o Acquire::Retries=3 download-file {quote(url)} "$deb" >"$folder/said" 2>&1'
    unpack = f'dpkg-deb --fsys-tarfile "$deb" | tar -x -O --wildcards {quote("*" + KEYRING_IN_DEB)}'
    lines = (
        "folder=$(mktemp -d) || exit 1; trap 'rm -rf \"$folder\"' EXIT; deb=$folder/keyring.deb",
        f'{download} || {{ grep "^E:" "$folder/said" >&2; {stop(no_file)}; }}',
        'seen=$(sha256sum "$deb"); seen=${seen%% *}',
        f'[ "$seen" = {quote(wanted)} ] || {{ {stop(what, "seen", other)}; }}',
        f'{unpack} >"$folder/key" 2>/dev/null; [ -s "$folder/key" ] || {{ {stop(no_key)}; }}',
        f'install -D -m 0644 "$folder/key" {new} && mv -f {new} {quote(path)}',
    )
    return ("\n".join(lines),)


add_repository = place(NVIDIA_PIN, NVIDIA_SOURCE)
"""The pin first: at no moment may NVIDIA's repository give what it must not give."""


def install(plan: Plan, state: HostState) -> Commands:
    """Install what is missing: nothing before apt has found it possible for all names at once."""
    made = plan.driver
    names = missing(made, state) if made else ()
    if made is None or not names:
        return ()
    return (_update(made), _simulate(made, names), _install(names))


def missing(made: Installation, state: HostState) -> tuple[str, ...]:
    """The packages to name to apt. Kernel and driver always together; none of them while a reboot is due."""
    there = state.packages.installed
    loaded, on_disk = state.nvidia.loaded, state.nvidia.on_disk
    between_versions = loaded is not None and on_disk is not None and loaded != on_disk
    versions = [upstream(there[name]) for name in made.driver if name in there]
    too_old = any(version and older(version, made.wanted.minimum_driver) for version in versions)
    driver = not between_versions and (too_old or any(name not in there for name in made.driver))
    others = tuple(name for name in (*made.build, made.toolkit) if name not in there)
    return (*(made.driver if driver else ()), *others)


def _update(made: Installation) -> str:
    """NVIDIA's list by itself: otherwise apt-get passes over what it cannot reach. Then everybody's."""
    own = f"-o Dir::Etc::sourcelist={NVIDIA_SOURCE} -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
    lists = "the package lists cannot be read: seen the messages above, wanted none; repair the host's apt sources"
    line = (
        f"NVIDIA's repository cannot be read: seen the messages above, wanted {made.url}; repair the way there, "
        "or set gpu.repository to a mirror"
    )
    return "\n".join((
        f"{APT} {own} -o APT::Update::Error-Mode=any update || {{ {stop(line)}; }}",
        f"{APT} update || {{ {stop(lists)}; }}",
    ))  # fmt: skip


def _simulate(made: Installation, names: tuple[str, ...]) -> str:
    """Every name at once, and nothing of somebody else's removed."""
    correct = (
        f", wanted all of them there; look for them in {made.url} and the distribution's sources, "
        "or correct gpu.driver_branch and gpu.toolkit"
    )
    component = " (NVIDIA's guide wants Debian's contrib enabled)" if made.row.modules.value == "dkms" else ""
    no_solution = f", wanted a solution; see the messages above{component}"
    removes = ", wanted none; remove them yourself, then run deploy.py again"
    apt = f"{ENVIRONMENT} apt-get --simulate install --no-install-recommends"
    patterns = "s/^E: Unable to locate package //p; s/^E: Package '\\([^']*\\)' has no installation candidate.*/\\1/p"
    lines = (
        f"said=$(LC_ALL=C {apt} {join(names)} 2>&1); status=$?",
        f'absent=$(echo $(printf "%s\\n" "$said" | sed -n {quote(patterns)} | sort -u))',
        f'[ -z "$absent" ] || {{ {stop("packages are not in the repositories", "absent", correct)}; }}',
        'error=$(printf "%s\\n" "$said" | grep "^E:" | head -n 1)',
        f'[ "$status" = 0 ] || {{ printf "%s\\n" "$said" >&2; '
        f"{stop('apt cannot install driver and toolkit', 'error', no_solution)}; }}",
        'removed=$(echo $(printf "%s\\n" "$said" | sed -n "s/^Remv \\([^ ]*\\).*/\\1/p"))',
        f'[ -z "$removed" ] || {{ {stop("the installation would remove packages", "removed", removes)}; }}',
    )
    return "\n".join(lines)


def _install(names: tuple[str, ...]) -> str:
    return (
        f"{ENVIRONMENT} {APT} -y {KEEP_CONFIGURATION} --no-install-recommends --no-remove install {join(names)} "
        ">/dev/null"
    )


def blacklist(plan: Plan, state: HostState) -> Commands:
    """Keep Linux' own drivers away, in the initramfs too. Without a new initramfs the file is taken back."""
    line = "update-initramfs failed: seen its messages above, wanted new images; repair that, then run this again"
    update = f"{{ update-initramfs -u -k all >/dev/null || {{ rm -f {NOUVEAU_BLACKLIST}; {stop(line)}; }}; }}"
    return tuple(f"{command} && {update}" for command in place(NOUVEAU_BLACKLIST)(plan, state))


def load(plan: Plan, state: HostState) -> Commands:
    """Load the module, where that needs no reboot."""
    if plan.driver is None or state.nvidia.loaded is not None or reboot.card_reasons(plan, state) or stand_ins(state):
        return ()
    line = "the NVIDIA module does not load: seen the messages above, wanted it loaded; `dmesg | grep NVRM` says why"
    return (f"modprobe nvidia || {{ {stop(line)}; }}",)


def persist(plan: Plan, state: HostState) -> Commands:
    """Keep the driver's state while nobody uses the card, from boot on."""
    written = place(PERSISTENCED)(plan, state)
    enabled = state.links.get(PERSISTENCED_ENABLED) is not None
    wanted = plan.driver is not None
    if not written and (enabled or not wanted):
        return ()
    add = f" && systemctl -q add-wants multi-user.target {PERSISTENCED_UNIT}" if wanted else ""
    restart = f"if {_LOADED}; then systemctl restart {PERSISTENCED_UNIT}; fi"
    return (*written, f"systemctl daemon-reload{add} && {restart}")


def limit_power(plan: Plan, state: HostState) -> Commands:
    """Set the wanted power limit, now and at every boot. One that is taken back ends at the next boot."""
    written = place(POWER_LIMIT)(plan, state)
    enabled = state.links.get(POWER_LIMIT_ENABLED) is not None
    wanted = plan.driver is not None and plan.driver.wanted.power_limit_w is not None
    if not written and enabled == wanted:
        return ()
    if not wanted:
        return (f"rm -f {POWER_LIMIT_ENABLED}", *written, "systemctl daemon-reload")
    enable = f"systemctl daemon-reload && systemctl -q enable {POWER_LIMIT_UNIT}"
    return (*written, f"{enable} && if {_LOADED}; then systemctl restart {POWER_LIMIT_UNIT}; fi")


def prove_module(plan: Plan, state: HostState) -> Commands:
    """Before a reboot: the kernel that boots next must have the module."""
    if plan.driver is None or not reboot.reasons(plan, state):
        return ()
    kernel = state.boot.next_kernel or state.kernel.release or ""
    do = f"install its headers and run `dkms autoinstall -k {kernel}`, or boot another kernel; nothing was rebooted"
    found = " || ".join(f"modinfo -k {quote(kernel)} {name} >/dev/null 2>&1" for name in ("nvidia", "nvidia-current"))
    dkms = "dkms=$(echo $(dkms status 2>/dev/null)); dkms=${dkms:-nothing in dkms status}"
    no_module = stop("the kernel that boots next has no NVIDIA module", "dkms", f", wanted one for {kernel}; {do}")
    return (f"{found} || {{ {dkms}; {no_module}; }}",)
