"""The offline command line: the same decisions as deploy.py, without a host.

Exit codes: 0 done, 1 something judged is bad, 2 refused or wrong usage.
"""

from __future__ import annotations

import json
import reprlib
import sys
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.markdown import Markdown

from ktfleet import config, pages, plan, recipes, report, results
from ktfleet.host import probe as host_probe
from ktfleet.host import second_opinion
from ktfleet.host.state import SCHEMA, HostState
from ktfleet.plan.request import request
from ktfleet.plan.settings import TABLE
from ktfleet.problem import Problem, Refused
from ktfleet.validation import wanted

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
StateFile = Annotated[Path, typer.Option("--state", help="The probe's JSON; - reads standard input.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with an inventory's keys.")]
RecipeName = Annotated[
    str | None, typer.Option("--recipe", help="A recipe's name or path; overrides the configuration's.")
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the page of docs/.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; its keys are an interface.")]


def main() -> None:
    """Entry point: what a user can cause ends in lines of the error grammar, not in a traceback."""
    # A captured state can hold what is no text: it is shown, escaped.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except Refused as refused:
        _refuse(refused.problems)
    except OSError as error:
        do = "free some space or write elsewhere"
        _refuse((Problem("the output cannot be written", error.strerror or str(error), "a place to write to", do),))


@app.command()
def probe(
    root: Annotated[Path, typer.Option(help="Read a captured tree with proc/, sys/, etc/.")] = Path("/"),
) -> None:
    """Print this machine's state as JSON."""
    if not root.is_dir():
        _refuse((Problem("--root", str(root), "a folder with proc/, sys/ and etc/", "check the path"),))
    state = host_probe.collect(root=str(root), **asdict(request()))
    if root.resolve() == Path("/"):
        second_opinion.add_cpuid(state)
    print(json.dumps(state))


@app.command("plan")
def plan_(state: StateFile, config_file: ConfigFile = None, recipe: RecipeName = None, as_json: AsJson = False) -> None:
    """Print what ktfleet would decide for a captured host."""
    made = _plan(state, config_file, recipe)
    print(json.dumps(made.to_json(), indent=1) if as_json else report.plan_text(made))
    if made.refusals:
        raise typer.Exit(2)


@app.command()
def launch(
    state: StateFile, config_file: ConfigFile = None, recipe: RecipeName = None, as_json: AsJson = False
) -> None:
    """Print the server's exact environment and command line, as a shell takes them. Exit 2 with the refusals."""
    made = _plan(state, config_file, recipe)
    if made.refusals or not made.cores.cpuinfer:
        raise Refused((*made.refusals, *made.unknown))
    for line in (*(f"accepted: {each}" for each in made.accepted), *(f"unknown: {each}" for each in made.unknown)):
        print(line, file=sys.stderr)
    print(json.dumps(made.launch.to_json(), indent=1) if as_json else made.launch.shell())


def _plan(state: Path, config_file: Path | None, recipe: str | None) -> plan.Plan:
    workstation = config.load(config_file) if config_file else config.Workstation()
    served = recipes.load(recipe or workstation.recipe, workstation.override, str(config_file))
    return plan.make(_read_state(state), workstation, served)


@app.command()
def settings(
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> None:
    """Print the table of settings: every value with its reason and source."""
    recipe = recipes.load(config.Workstation().recipe)
    if not as_json:
        _page(report.settings_markdown(recipe), markdown)
        return
    rows: list[dict[str, Any]] = [
        {
            "key": row.key,
            "writer": row.writer.value,
            "wanted": report.wanted_text(row, recipe),
            "why": row.why,
            "source": row.source,
            "effect": row.effect,
        }
        for row in TABLE
    ]
    print(json.dumps(rows, indent=1))


@app.command("recipes")
def recipes_(markdown: AsMarkdown = False) -> None:
    """Print the packaged recipes: what each serves, how, what was published of it and what it costs in accuracy."""
    _page(pages.recipes_markdown(), markdown)


@app.command()
def guard_rails(markdown: AsMarkdown = False) -> None:
    """Print the guard rails: settings that are known to lose, with reason, effect and source."""
    _page(pages.guard_rails_markdown(), markdown)


def _page(text: str, markdown: bool) -> None:
    print(text, end="") if markdown else Console().print(Markdown(text))


@app.command("report")
def report_(folder: Annotated[Path, typer.Argument(metavar="[RESULTS]")] = results.FOLDER) -> None:
    """Print the verdict table of the latest runs. Exit 1 when a verdict is bad."""
    hosts = tuple(results.load(folder))
    for table in report.verdict_tables(hosts):
        Console().print(table)
    if not report.all_good(hosts):
        raise typer.Exit(1)


def _read_state(path: Path) -> HostState:
    what = f"--state {path}"
    do = "pass the output of `ktfleet probe`"
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        data = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        seen = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise Refused((Problem(what, seen, "the probe's JSON", do),)) from error
    version = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if type(version) is not int or version != SCHEMA:
        raise Refused((Problem(what, f"schema {version}", f"schema {SCHEMA}", do),))
    try:
        return HostState.model_validate(data)
    except ValidationError as error:
        found = [
            Problem(f"{what}: {'.'.join(map(str, e['loc']))}", reprlib.repr(e["input"]), wanted(e["msg"]), do)
            for e in error.errors()
        ]
        raise Refused(tuple(found)) from error


def _refuse(problems: tuple[Problem, ...]) -> NoReturn:
    for problem in problems:
        print(problem, file=sys.stderr)
    raise SystemExit(2)
