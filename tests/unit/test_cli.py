"""The offline command line as its users start it."""

import json
import shlex
import subprocess
import sys
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ktfleet import cli, pages, report, results
from ktfleet.config import Workstation
from ktfleet.plan import trial
from ktfleet.plan.guard_rails import TABLE as GUARD_RAILS
from ktfleet.plan.settings import TABLE
from ktfleet.recipes import load, names
from ktfleet.verdict import Verdict
from tests.answers import ALL as ALL_ANSWERS
from tests.trees import write_tree
from tests.weights import SMALL, write_merged

ROOT = Path(__file__).parents[2]
KTFLEET = Path(sys.executable).with_name("ktfleet")


def ktfleet(*arguments: str | Path, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command in this process: starting an interpreter for each case would take most of the tests' time."""
    out, err, argv = StringIO(), StringIO(), ["ktfleet", *map(str, arguments)]
    with ExitStack() as stack:
        for context in (redirect_stdout(out), redirect_stderr(err), chdir(cwd or ROOT)):
            stack.enter_context(context)
        stack.enter_context(patch.object(sys, "argv", argv))
        stack.enter_context(patch.object(sys, "stdin", StringIO(stdin)))
        code = stack.enter_context(pytest.raises(SystemExit))
        cli.main()
    return subprocess.CompletedProcess(argv, int(code.value.code or 0), out.getvalue(), err.getvalue())


def test_the_installed_command_starts() -> None:
    done = subprocess.run([KTFLEET, "settings", "--json"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    write_tree(folder / "tree")
    file = folder / "state.json"
    file.write_text(ktfleet("probe", "--root", folder / "tree").stdout)
    return file


def test_a_captured_tree_becomes_a_plan(state: Path) -> None:
    done = ktfleet("plan", "--state", state, "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (plan["refusals"], plan["unknown"]) == ([], [])
    assert (plan["pools"], plan["cpuinfer"]) == (2, 40)
    assert plan["worker_cpus"] == {"0": list(range(20)), "1": list(range(20, 40))}
    assert plan["other_cpus"] == list(range(40, 80))
    assert plan["hugepages"] == {"policy": "thp", "per_node": {"0": 0, "1": 0}}
    assert {tuple(row) for row in plan["settings"]} == {("key", "wanted", "why", "source")}


def test_the_state_can_come_from_a_pipe(state: Path) -> None:
    assert ktfleet("plan", "--state", "-", stdin=state.read_text()).returncode == 0


def test_a_plan_for_people_says_where_the_workers_go(state: Path) -> None:
    lines = ktfleet("plan", "--state", state).stdout.splitlines()
    assert "recipe dsv4-flash-amxint4: 2 pools, cpuinfer 40" in lines
    assert "node 0: workers on CPUs 0-19; 64.8 GiB of weights" in lines
    assert "other threads: CPUs 40-79" in lines


def test_the_start_of_the_server_as_json(state: Path) -> None:
    done = ktfleet("launch", "--state", state, "--recipe", "dsv4-flash-amxint4-top4", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(told) == {"argv", "env", "unset", "cpu_affinity"}
    assert told["argv"][1:3] == ["-m", "sglang.launch_server"]
    assert told["argv"][told["argv"].index("--kt-cpuinfer") + 1] == "40"
    assert told["cpu_affinity"] == list(range(40, 80))
    assert told["env"]["SGLANG_DSV4_MODE"] == "2604"


def test_the_start_of_the_server_for_a_shell(state: Path) -> None:
    done = ktfleet("launch", "--state", state)
    told = json.loads(ktfleet("launch", "--state", state, "--json").stdout)
    words = shlex.split(done.stdout.replace("\\\n", ""))
    assert words[:5] == ["taskset", "--cpu-list", "40-79", "env", "-i"]
    variables = [f"{name}={value}" for name, value in told["env"].items()]
    assert words[5:] == [*variables, *told["argv"]]


def test_a_refused_start_prints_nothing_to_paste(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "ws.toml"
    config.write_text('cpuinfer = 80\n[override.flags]\nenable-metricss = true\n[accept]\nclmap = "x"\n')
    done = ktfleet("launch", "--state", state, "--config", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == [
        "cpuinfer is too high", "accept.clmap", "dsv4-flash-amxint4",
    ]  # fmt: skip


def test_what_is_accepted_is_told_beside_the_start(state: Path) -> None:
    done = ktfleet("launch", "--state", state, "--recipe", "dsv4-flash-mxfp4-eagle")
    assert done.returncode == 0
    assert done.stderr.startswith("accepted: EAGLE where the CPUs' memory is the limit: EAGLE; accepted: ")


def test_an_override_is_named_by_its_file(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "ws.toml"
    config.write_text("[override.offload]\ntopk = 4\n")
    done = ktfleet("plan", "--state", state, "--config", config)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{config}: override: offload.topk: seen an unknown key")
    config.write_text("[override.offload]\ntop_k = 4\n")
    told = json.loads(ktfleet("plan", "--state", state, "--config", config, "--json").stdout)
    assert (told["override"], told["accepted"]) == ({"offload": {"top_k": 4}}, [])


def test_a_refused_plan_exits_2_and_still_tells_everything(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "ws.toml"
    config.write_text("cpuinfer = 80\n")
    done = ktfleet("plan", "--state", state, "--config", config, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["refusals"] == [
        {
            "what": "cpuinfer is too high",
            "seen": "80",
            "wanted": "at most 40 (20+20 physical cores; a worker without a core of its own costs 10x)",
            "do": "set cpuinfer = 40",
        }
    ]
    assert "refused: cpuinfer is too high: seen 80" in ktfleet("plan", "--state", state, "--config", config).stdout


def test_a_tree_with_gaps_is_planned_with_what_is_missing(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "proc/cpuinfo").unlink()
    captured = tmp_path / "state.json"
    captured.write_text(ktfleet("probe", "--root", tree).stdout)
    done = ktfleet("plan", "--state", captured, "--json")
    plan = json.loads(done.stdout)
    assert (done.returncode, plan["refusals"], plan["cpuinfer"]) == (0, [], 40)
    assert [problem["what"] for problem in plan["unknown"]] == ["the CPU flags cannot be read"]
    assert plan["unknown"][0]["seen"] == "no such file"


@pytest.mark.parametrize(("arguments", "line"), [
    (["plan", "--state", "nope.json"],
     "--state nope.json: seen No such file or directory, wanted the probe's JSON; pass the output of `ktfleet probe`"),
    (["plan", "--state", "text"], "--state text: seen Expecting value"),
    (["plan", "--state", "list"], "--state list: seen schema list, wanted schema 1;"),
    (["plan", "--state", "future"], "--state future: seen schema 99, wanted schema 1;"),
    (["plan", "--state", "typed"], "--state typed: cpus: seen 'x'"),
    (["plan", "--state", "deep"], "--state deep: seen maximum recursion depth exceeded"),
    (["plan", "--state", "true"], "--state true: seen schema True, wanted schema 1;"),
    (["plan", "--state", "negative"], "--state negative: nodes.0.mem_total: seen -1"),
    (["plan", "--state", "huge"], "--state huge: seen"),
    (["plan", "--state", "good", "--recipe", "dsv4"], "recipe: seen 'dsv4', wanted one of dsv4-flash-amxint4, "),
    (["plan", "--state", "good", "--config", "bad.toml"], "bad.toml: recipie: seen an unknown key"),
    (["launch", "--state", "good", "--recipe", "dsv4-flash-amxint"], "recipe: seen 'dsv4-flash-amxint', wanted one"),
    (["probe", "--root", "nowhere"], "--root: seen nowhere, wanted a folder with proc/, sys/ and etc/;"),
    (["report", "nowhere"], "no results: seen no *.json in nowhere, wanted a finished run; run deploy.py first"),
])  # fmt: skip
def test_a_mistake_is_one_line_and_exit_2(tmp_path: Path, arguments: list[str], line: str) -> None:
    contents: dict[str, Any] = {"list": [], "future": {"schema": 99}, "typed": {"schema": 1, "cpus": "x"}}
    contents |= {"true": {"schema": True}, "negative": {"schema": 1, "nodes": [{"node": 0, "mem_total": -1}]}}
    for name, content in {**contents, "good": {"schema": 1}}.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "text").write_text("hello")
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "huge").write_text('{"schema": 1, "mem_total": 1' + "0" * 5000 + "}")
    (tmp_path / "bad.toml").write_text('recipie = "x"\n')
    done = ktfleet(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert len(done.stderr.splitlines()) == 1


def test_output_that_is_no_text_is_shown_escaped(tmp_path: Path) -> None:
    state = {"schema": 1, "cpu_model": "\ud800", "cpu_flags": []}
    (tmp_path / "state.json").write_text(json.dumps(state))
    done = subprocess.run([KTFLEET, "plan", "--state", tmp_path / "state.json"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "")
    assert "\\ud800" in done.stdout


def test_output_that_nobody_takes_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([KTFLEET, "settings", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("the output cannot be written: seen No space left on device")
    assert "Traceback" not in done.stderr


def test_the_table_of_settings_as_json() -> None:
    rows = json.loads(ktfleet("settings", "--json").stdout)
    assert [row["key"] for row in rows] == [row.key for row in TABLE]
    assert all(row["wanted"] and row["why"] and row["source"] and row["effect"] for row in rows)


def test_the_settings_page_is_current() -> None:
    wanted = report.settings_markdown(load(Workstation().recipe))
    path = ROOT / "docs" / "settings.md"
    assert path.read_text() == wanted, "run .venv/bin/ktfleet settings --markdown > docs/settings.md"


@pytest.mark.parametrize(("command", "page"), [("recipes", "recipes"), ("guard-rails", "guard-rails")])
def test_the_generated_pages_are_current(command: str, page: str) -> None:
    wanted = ktfleet(command, "--markdown").stdout
    path = ROOT / "docs" / f"{page}.md"
    assert path.read_text() == wanted, f"run .venv/bin/ktfleet {command} --markdown > docs/{page}.md"
    assert ktfleet(command).returncode == 0


def test_the_pages_tell_every_recipe_and_every_rail() -> None:
    recipes_page, rails_page = pages.recipes_markdown(), pages.guard_rails_markdown()
    assert [line[3:] for line in recipes_page.splitlines() if line.startswith("## ")] == names()
    assert all(rail.what in rails_page and rail.effect in rails_page for rail in GUARD_RAILS)


def test_a_start_of_an_unread_host_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"schema": 1}')
    done = ktfleet("launch", "--state", tmp_path / "state.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the CPUs cannot be read" in done.stderr


def test_the_report_fails_with_a_bad_verdict(tmp_path: Path) -> None:
    results.store("ws01", "drift", (Verdict("vm.swappiness", "pass", "1", "1", "x"),), tmp_path / "results")
    assert ktfleet("report", cwd=tmp_path).returncode == 0
    results.store("ws02", "drift", (Verdict("vm.swappiness", "fail", "60", "1", "x"),), tmp_path / "results")
    done = ktfleet("report", cwd=tmp_path)
    assert done.returncode == 1
    assert all(word in done.stdout for word in ("ws01", "ws02", "vm.swappiness", "pass", "fail", "60"))


def test_weights_are_verified(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    done = ktfleet("weights", "verify", str(tmp_path), "--pools", "2")
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert done.stdout.startswith("model.safetensors.index.json is broken: seen JSON that is a list, wanted")
    done = ktfleet("weights", "verify", str(tmp_path), "--pools", "2", "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert (answer["complete"], answer["problems"][0]["seen"]) == (False, "JSON that is a list")


@pytest.mark.parametrize("arguments", [
    ("verify",), ("verify", ".", "--pools", "x"), ("verify", "no/such/folder", "--pools", "2"),
    ("verify", ".", "--pools", "3"), ("verify", ".", "--pools", "0"), ("verify", ".", "--pools", "2", "--recipe", "x"),
])  # fmt: skip
def test_wrong_usage_of_the_verification(arguments: tuple[str, ...]) -> None:
    done = ktfleet("weights", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_complete_weights_are_said_to_be(tmp_path: Path) -> None:
    sizes = "layers = 2\ncount = 3\nper_token = 2\nhidden = 32\nintermediate = 16\nbytes = 1152\n"
    text = f'name = "small"\ninherits = "dsv4-flash-amxint4"\naccuracy = "none"\n[experts]\n{sizes}'
    (tmp_path / "small.toml").write_text(text)
    folder = write_merged(tmp_path / "weights", SMALL)
    done = ktfleet("weights", "verify", str(folder), "--pools", "2", "--recipe", str(tmp_path / "small.toml"))
    assert (done.returncode, done.stdout) == (0, f"complete: 72 tensors, 2 pools, {SMALL.total_bytes} bytes of them\n")


STREAMS = ROOT / "tests" / "fixtures" / "transcripts"


def test_rate_prints_the_interface_and_tells_by_its_exit_code() -> None:
    done = ktfleet("rate", "--transcript", str(STREAMS / "sgl_continuous_usage.jsonl"), "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert (told["verdict"], told["reason"], told["tokens"], told["approximate"]) == ("ok", "", 32, False)
    assert told["decode_tok_s"] == pytest.approx(391.13, rel=1e-3)
    assert told["ttft_s"] == pytest.approx(0.014, rel=0.01)
    done = ktfleet("rate", "--transcript", str(STREAMS / "llama_no_stream_options.jsonl"), "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert (told["verdict"], told["decode_tok_s"]) == ("cannot-measure", None)


def test_rate_for_people() -> None:
    done = ktfleet("rate", "--transcript", str(STREAMS / "llama_ignore_eos_128.jsonl"))
    assert done.stdout == "1012.82 tok/s (approximate: 1012.82 to 1012.82), 128 tokens, the first after 0.006 s\n"
    done = ktfleet("rate", "--transcript", str(STREAMS / "llama_killed_mid_stream.jsonl"))
    assert (done.returncode, done.stdout) == (
        1, "error: the stream ended after 30 events, before it was finished\n",
    )  # fmt: skip


def test_rate_of_no_transcript_is_refused_in_one_line(tmp_path: Path) -> None:
    done = ktfleet("rate", "--transcript", str(tmp_path / "none.jsonl"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.jsonl: seen No such file or directory, wanted a file of JSON lines" in done.stderr


def answers_file(folder: Path, **texts: str) -> Path:
    path = folder / "answers.json"
    path.write_text(json.dumps([{"task": task, "text": text} for task, text in texts.items()]))
    return path


def test_canary_prints_the_interface_and_tells_by_its_exit_code(tmp_path: Path) -> None:
    done = ktfleet("canary", "--answers", answers_file(tmp_path, **ALL_ANSWERS), "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["verdict"], set(told["tasks"].values())) == (0, "pass", {"pass"})
    wrong = {**ALL_ANSWERS, "arithmetic": "355"}
    told = json.loads((done := ktfleet("canary", "--answers", answers_file(tmp_path, **wrong), "--json")).stdout)
    assert (done.returncode, told["verdict"], told["tasks"]["arithmetic"]) == (1, "fail", "fail")
    assert "the answer is 355" in told["reasons"]["arithmetic"]
    done = ktfleet("canary", "--answers", answers_file(tmp_path, arithmetic="355"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "fail")


def test_canary_of_an_unknown_task_is_refused(tmp_path: Path) -> None:
    done = ktfleet("canary", "--answers", answers_file(tmp_path, fibb="x"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "an answer's task: seen 'fibb', wanted one of" in done.stderr


@pytest.mark.parametrize(("python", "seen"), [
    ("/no/such/python", "no such file or directory"),
    ("/bin/false", "exit status 1"),
])  # fmt: skip
def test_a_trial_without_kt_kernels_python_is_one_line(python: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "possible", lambda _: True)  # on a machine of the tests with one core, too
    monkeypatch.setattr(trial, "others", lambda _: ())
    done = ktfleet("measure", "placement", "--ab", "--python", python)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"--python {python}: seen {seen}, wanted "), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_trial_on_one_core_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "possible", lambda _: False)
    done = ktfleet("measure", "placement")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this machine cannot show it" in done.stderr
