"""What people read: the verdict table, the table of settings, a plan in words."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.markup import escape
from rich.table import Table

from ktfleet.config import HugepagePolicy, Hugepages, Workstation
from ktfleet.measure.stream import Reading
from ktfleet.plan import Plan, memory
from ktfleet.plan.cpu_lists import ranges
from ktfleet.plan.places import (
    APT,
    BEFORE,
    BEFORE_FILES,
    BOOT_UNIT,
    COMMAND_LINE,
    IRQBALANCE,
    JOURNALD,
    LATENCY_UNIT,
    SERVER_HOST,
    SYSCTLS,
)
from ktfleet.plan.row import Layout, Row, Writer
from ktfleet.plan.settings import TABLE
from ktfleet.plan.worksheet import Item
from ktfleet.recipes import Recipe
from ktfleet.results import Check, HostResults
from ktfleet.verdict import Verdict, summary

_STYLE = {
    "good": "green",
    "change": "bold yellow",
    "unknown": "yellow",
    "pass": "green",
    "skipped": "yellow",
    "fail": "bold red",
    "inconclusive": "bold red",
}


def verdict_tables(hosts: Iterable[HostResults]) -> list[Table]:
    """One table a host and check: a title with the counts, then a line a judged thing. Then its worksheet."""
    tables = []
    for host in hosts:
        tables += [_table(host.host, name, check) for name, check in host.checks.items()]
        if host.worksheet:
            tables.append(_worksheet(host.host, host.worksheet))
    return tables


def _worksheet(host: str, items: tuple[Item, ...]) -> Table:
    title = f"[bold]{escape(host)}  BIOS and DIMM worksheet[/]\nfor a person at the machine; it stops nothing"
    table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD)
    table.add_column("answer")
    table.add_column("of what", overflow="fold")
    for item in items:
        table.add_row(f"[{_STYLE[item.answer]}]{item.answer}[/]", escape(str(item)))
    return table


def _table(host: str, name: str, check: Check) -> Table:
    taken = escape(f"{check.taken}, ktfleet {check.commit}")
    title = f"[bold]{escape(host)}  {escape(name)}: {summary(check.verdicts)}[/]\n{taken}"
    table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE_HEAD)
    table.add_column("verdict")
    # Two columns only: the keys are long paths, and more columns would fold them on a narrow terminal.
    table.add_column("of what", overflow="fold")
    for verdict in check.verdicts:
        table.add_row(f"[{_STYLE[verdict.result]}]{verdict.result}[/]", escape(_line(verdict)))
    return table


def _line(verdict: Verdict) -> str:
    if verdict.result == "pass":
        return f"{verdict.key}: {verdict.seen}"
    if verdict.result == "skipped":
        return f"{verdict.key}: {verdict.why}"
    return f"{verdict.difference}; {verdict.why}"


def all_good(hosts: Iterable[HostResults]) -> bool:
    """Whether every host was proven: its drift check ran, and every verdict lets a run succeed."""
    found = tuple(hosts)
    return bool(found) and all(_good(host) for host in found)


def _good(host: HostResults) -> bool:
    proven = "drift" in host.checks and all(check.verdicts for check in host.checks.values())
    return proven and all(verdict.good for check in host.checks.values() for verdict in check.verdicts)


def rate_text(reading: Reading) -> str:
    """One line: the rate of one stream, or why there is none."""
    if reading.verdict != "ok" or reading.decode_tok_s is None:
        return f"{reading.verdict}: {reading.reason}"
    about = f" (approximate: {reading.low_tok_s:.2f} to {reading.high_tok_s:.2f})" if reading.approximate else ""
    return f"{reading.decode_tok_s:.2f} tok/s{about}, {reading.tokens} tokens, the first after {reading.ttft_s:.3f} s"


def plan_text(plan: Plan) -> str:
    """A plan for people: refusals first, then what would be done."""
    lines = [f"refused: {problem}" for problem in plan.refusals]
    lines += [f"unknown: {problem}" for problem in plan.unknown]
    lines += [f"accepted: {each}" for each in plan.accepted]
    lines += [f"note: {note}" for note in plan.notes]
    lines += [f"worksheet: {item}" for item in plan.worksheet if item.answer == "change"]
    lines.append(f"recipe {plan.recipe.name}: {plan.cores.pools} pools, cpuinfer {plan.cores.cpuinfer}")
    for node, cpus in plan.cores.worker_cpus.items():
        lines.append(
            f"node {node}: workers on CPUs {ranges(cpus) or 'none'}; {_gib(plan.memory.shard_bytes)} of weights"
        )
    lines.append(f"other threads: CPUs {ranges(plan.cores.other_cpus) or 'none'}")
    lines.append(f"huge pages: {plan.memory.policy}, {plan.memory.hugepages_per_node} a node")
    lines += [f"{setting.row.writer.value} {setting.key} = {setting.wanted}" for setting in plan.settings]
    lines += [f"package {name}" for name in (plan.driver.packages if plan.driver else ())]
    return "\n".join(lines)


def _gib(size: int) -> str:
    return f"{size / 1024**3:.1f} GiB"


def wanted_text(row: Row, recipe: Recipe) -> str:
    """The wanted value for two pools; by huge page policy, or in words, where it depends on that or on the host."""
    if row.shown:
        return row.shown
    policies: tuple[HugepagePolicy, ...] = ("thp", "hugetlb", "off")
    values: dict[str, list[str]] = {}
    for policy in policies:
        config = Workstation(hugepages=Hugepages(policy=policy))
        value = row.want(Layout(config, memory.divide(recipe, config.hugepages, pools=2))) or "nothing"
        values.setdefault(value, []).append(policy)
    if len(values) == 1:
        return next(iter(values))
    return ", ".join(f"{value} ({' and '.join(under)})" for value, under in values.items())


_READ_BACK = {
    Writer.SERVER: f"added to the server's unit by {SERVER_HOST} and {LATENCY_UNIT}; read back from the running server",
    Writer.IRQBALANCE: f"given to irqbalance by {IRQBALANCE}; read back from the running irqbalance",
    Writer.APT: f"written to {APT}; read back as the last word of all of apt's files",
    Writer.JOURNALD: f"written to {JOURNALD}; read back as the last word of all of journald's files",
    Writer.ENABLED: "installed if it is missing, enabled and started; read back as the symlink that systemd made",
    Writer.SYSCTL: f"written to {SYSCTLS} and set at once; read back from /proc/sys",
    Writer.SYSFS: f"written at every boot by {BOOT_UNIT} and set at once; every matching file is read back",
    Writer.MASK: "masked at once and for every boot; read back as the symlink that systemd made",
    Writer.CMDLINE: f"appended by {COMMAND_LINE}, takes a reboot; read back from /proc/cmdline and grub.cfg",
}


def settings_markdown(recipe: Recipe) -> str:
    """docs/settings.md, whole."""
    parts = [_INTRODUCTION.format(recipe=recipe.name, before=BEFORE, files=BEFORE_FILES)]
    for writer in Writer:
        parts.append(f"## {_capital(writer.value)}\n\n{_capital(_READ_BACK[writer])}.\n")
        parts += [_rows_markdown(rows, recipe) for rows in _alike(writer)]
    return "\n".join(parts)


_INTRODUCTION = """# Settings

Generated from `ktfleet/plan/settings.py` by `ktfleet settings --markdown`: change it there. Values are for the
reference workstation (2x Xeon Gold 6138, recipe {recipe}). A setting whose effect was not measured says so: nobody
here has such a machine, and a figure from another one would be a guess. "Skipped" is the verdict of a setting that a
host rightly lacks; without such a line a missing setting fails.
What a host had before ktfleet's first change is kept on it: values in `{before}`, replaced files below `{files}`.
"""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _alike(writer: Writer) -> list[list[Row]]:
    """The rows of a writer; those with the same reason together, as one paragraph."""
    found: dict[str, list[Row]] = {}
    for row in TABLE:
        if row.writer is writer:
            found.setdefault(row.why, []).append(row)
    return list(found.values())


def _rows_markdown(rows: list[Row], recipe: Recipe) -> str:
    row = rows[0]
    lines = [
        f"### {', '.join(f'`{row.key}`' for row in rows)}\n",
        f"**Wanted:** {wanted_text(row, recipe)}\n",
        f"**Why:** {row.why}\n",
        f"**Source:** {row.source}. **Measured effect:** {row.effect}.",
    ]
    if row.absent:
        lines.append(f"\n**Skipped when:** {row.absent}.")
    return "\n".join(lines) + "\n"
