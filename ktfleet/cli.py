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

from ktfleet import config, here, pages, plan, recipes, report, results
from ktfleet.host import probe as host_probe
from ktfleet.host import second_opinion
from ktfleet.host.state import SCHEMA, HostState
from ktfleet.judge import canary as canary_judge
from ktfleet.measure import recorded_answers
from ktfleet.measure import transcript as transcripts
from ktfleet.plan import trial
from ktfleet.plan.places import STACK_PYTHON
from ktfleet.plan.request import request
from ktfleet.plan.settings import TABLE
from ktfleet.plan.weights.wanted import layout
from ktfleet.problem import Problem, Refused
from ktfleet.validation import wanted
from ktfleet.weights import verify

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
StateFile = Annotated[Path, typer.Option("--state", help="The probe's JSON; - reads standard input.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with an inventory's keys.")]
RecipeName = Annotated[
    str | None, typer.Option("--recipe", help="A recipe's name or path; overrides the configuration's.")
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the page of docs/.")]
weights_app = typer.Typer(no_args_is_help=True, help="Weights on a disk.")
app.add_typer(weights_app, name="weights")
measure_app = typer.Typer(no_args_is_help=True, help="Measurements of this machine.")
app.add_typer(measure_app, name="measure")
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


@weights_app.command("verify")
def verify_weights(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Converted weights, merged or as a .kt tree.")],
    pools: Annotated[int, typer.Option(help="NUMA nodes that they are to serve.")],
    recipe: Annotated[str, typer.Option(help="A recipe's name or path.")] = config.Workstation().recipe,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte; keep hashes for the next time.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether converted weights are complete and made for this many pools. Exit 1 with each problem."""
    if not folder.is_dir():
        _refuse((Problem("DIR", str(folder), "a folder of converted weights", "check the path"),))
    wanted_layout = layout(recipes.load(recipe), pools)
    problems = verify.converted(folder, wanted_layout, deep=deep)
    if as_json:
        print(json.dumps({"complete": not problems, "problems": [asdict(problem) for problem in problems]}, indent=1))
    else:
        complete = f"complete: {wanted_layout.count} tensors, {pools} pools, {wanted_layout.total_bytes} bytes of them"
        print("\n".join(map(str, problems)) or complete)
    if problems:
        raise typer.Exit(1)


@measure_app.command("placement")
def measure_placement(
    ab: Annotated[
        bool, typer.Option("--ab", help="Where the other threads run, instead of what is known to lose.")
    ] = False,
    python: Annotated[Path, typer.Option(help="A Python that has kt-kernel.")] = Path(STACK_PYTHON),
    recipe: Annotated[str, typer.Option(help="A recipe's name or path.")] = config.Workstation().recipe,
    rounds: Annotated[int, typer.Option(min=5, help="Of each arrangement; 40 take a minute.")] = trial.ROUNDS,
    as_json: AsJson = False,
) -> None:
    """Time one expert layer under several arrangements of the threads, in turn. Exit 1 when nothing was measured."""
    record = here.placement(recipes.load(recipe), python, rounds, ab=ab)
    print(record.model_dump_json(by_alias=True) if as_json else record)
    if record.why:
        raise typer.Exit(1)


@app.command("report")
def report_(folder: Annotated[Path, typer.Argument(metavar="[RESULTS]")] = results.FOLDER) -> None:
    """Print the verdict table of the latest runs. Exit 1 when a verdict is bad."""
    hosts = tuple(results.load(folder))
    for table in report.verdict_tables(hosts):
        Console().print(table)
    if not report.all_good(hosts):
        raise typer.Exit(1)


@app.command()
def rate(
    transcript: Annotated[Path, typer.Option(help='JSON lines {"t": seconds, "raw": text} of one streamed answer.')],
    as_json: AsJson = False,
) -> None:
    """Print the decode rate of a recorded stream. Exit 1 when it has none."""
    reading = transcripts.replay(transcript)
    print(json.dumps(reading.numbers()) if as_json else report.rate_text(reading))
    if reading.verdict != "ok":
        raise typer.Exit(1)


@app.command()
def canary(
    answers: Annotated[Path, typer.Option(help='JSON: [{"task": "two_sum", "text": "..."}], what a model answered.')],
    as_json: AsJson = False,
) -> None:
    """Judge given answers: run their code in a sandbox here. Exit 1 unless all pass."""
    verdicts = canary_judge.by_task(recorded_answers.run_all(recorded_answers.read(answers)))
    result = canary_judge.overall(tuple(verdicts.values()))
    tasks = {task: verdict.result for task, verdict in verdicts.items()}
    reasons = {task: str(verdict) for task, verdict in verdicts.items() if not verdict.good}
    lines = "\n".join(map(str, verdicts.values()))
    print(json.dumps({"verdict": result, "tasks": tasks, "reasons": reasons}) if as_json else f"{lines}\n{result}")
    if result != "pass":
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
