"""What people read: the verdict table, the table of settings, a plan in words."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table

from ktfleet.config import Hugepages, Workstation
from ktfleet.plan import Plan, cores, memory
from ktfleet.plan.settings import OPT_INS, TABLE, Layout, Row, Writer
from ktfleet.recipes import Recipe
from ktfleet.results import HostResults
from ktfleet.verdict import Verdict, summary

_STYLE = {"pass": "green", "skipped": "yellow", "fail": "bold red", "inconclusive": "bold red"}


def verdict_table(hosts: Iterable[HostResults]) -> Table:
    """One line a judged thing, grouped by host and check, with a closing line for each check."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("host", "check", "what", "verdict", "seen", "wanted"):
        table.add_column(column, overflow="fold")
    for host in hosts:
        for name, check in host.checks.items():
            for verdict in check.verdicts:
                table.add_row(host.host, name, *_cells(verdict))
            table.add_row(
                host.host,
                name,
                f"[bold]{summary(check.verdicts)}[/]",
                "",
                check.taken,
                f"ktfleet {check.commit}",
            )
            table.add_section()
    return table


def all_good(hosts: Iterable[HostResults]) -> bool:
    """Whether every verdict of every host lets a run succeed."""
    return all(verdict.good for host in hosts for check in host.checks.values() for verdict in check.verdicts)


def _cells(verdict: Verdict) -> tuple[str, str, str, str]:
    style = _STYLE[verdict.result]
    seen = verdict.seen if verdict.result in ("pass", "fail") else verdict.why
    return verdict.key, f"[{style}]{verdict.result}[/]", seen, verdict.wanted


def plan_text(plan: Plan) -> str:
    """A plan for people: refusals first, then what would be done."""
    lines = [f"refused: {problem}" for problem in plan.refusals]
    lines += [f"unknown: {problem}" for problem in plan.unknown]
    lines += [f"note: {note}" for note in plan.notes]
    lines.append(f"recipe {plan.recipe.name}: {plan.cores.pools} pools, cpuinfer {plan.cores.cpuinfer}")
    for node, cpus in plan.cores.worker_cpus.items():
        lines.append(f"node {node}: workers on CPUs {ranges(cpus)}; {_gib(plan.memory.shard_bytes)} of weights")
    lines.append(f"other threads: CPUs {ranges(plan.cores.other_cpus)}")
    lines.append(f"huge pages: {plan.memory.policy}, {plan.memory.hugepages_per_node} a node")
    lines += [f"{setting.row.writer.value} {setting.key} = {setting.wanted}" for setting in plan.settings]
    return "\n".join(lines)


def ranges(cpus: Iterable[int]) -> str:
    """CPU numbers as the kernel writes them: 0-3,8,10-11."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1][1:] = [cpu]
        else:
            runs.append([cpu])
    return ",".join("-".join(map(str, run)) for run in runs) or "none"


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def wanted_text(row: Row, recipe: Recipe) -> str:
    """The wanted value for the reference workstation; by huge page policy where it depends on it."""
    values: dict[str, list[str]] = {}
    for policy in ("thp", "hugetlb", "off"):
        config = Workstation(hugepages=Hugepages(policy=policy), kernel_command_line=OPT_INS)
        layout = Layout(config, _REFERENCE_CORES, memory.divide(recipe, config.hugepages, _REFERENCE_CORES.pools))
        values.setdefault(row.want(layout) or "", []).append(policy)
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(f"{value} ({' and '.join(policies)})" for value, policies in values.items())


_REFERENCE_CORES = cores.Cores(2, 40, 40, {0: tuple(range(20)), 1: tuple(range(20, 40))}, tuple(range(40, 80)))

_READ_BACK = {
    Writer.SYSCTL: "written to /etc/sysctl.d/zz-ktfleet.conf and set at once; read back from /proc/sys",
    Writer.SYSFS: "written at every boot by ktfleet-sysfs.service and set at once; every matching file is read back",
    Writer.MASK: "masked at once and for every boot; read back as the symlink that systemd made",
    Writer.CMDLINE: "appended by /etc/default/grub.d/zz-ktfleet.cfg, takes a reboot; read back from /proc/cmdline",
}


def settings_markdown(recipe: Recipe) -> str:
    """docs/settings.md, whole."""
    parts = [_INTRODUCTION.format(recipe=recipe.name)]
    for writer in Writer:
        parts.append(f"## {writer.value[0].upper()}{writer.value[1:]}\n\n{_READ_BACK[writer].capitalize()}.\n")
        parts += [_row_markdown(row, recipe) for row in TABLE if row.writer is writer]
    return "\n".join(parts)


_INTRODUCTION = """# Settings

Generated from `ktfleet/plan/settings.py` by `ktfleet settings --markdown`: change it there. Values are for the
reference workstation (2x Xeon Gold 6138, recipe {recipe}). A setting whose effect was not measured says so.
What a host had before ktfleet's first change is kept on it, in `/var/lib/ktfleet/before.json`.
"""


def _row_markdown(row: Row, recipe: Recipe) -> str:
    lines = [
        f"### `{row.key}`\n",
        f"**Wanted:** {wanted_text(row, recipe)}\n",
        f"**Why:** {row.why}\n",
        f"**Source:** {row.source}. **Measured effect:** {row.effect}.",
    ]
    if row.absent:
        lines.append(f'\n**A host may lack it:** {row.absent}. Its verdict is then "skipped".')
    return "\n".join(lines) + "\n"
