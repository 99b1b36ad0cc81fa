import json
import re
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ktfleet import report, results
from ktfleet.plan.worksheet import Item
from ktfleet.problem import Refused
from ktfleet.verdict import Verdict

PASS = Verdict("vm.swappiness", "pass", "1", "1", "because")
FAIL = Verdict("vm.swappiness", "fail", "60", "1", "because")


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    results.store("ws01", "drift", (PASS, FAIL), tmp_path)
    (host,) = results.load(tmp_path)
    assert (host.host, host.checks["drift"].verdicts) == ("ws01", (PASS, FAIL))


def test_a_result_says_when_and_by_which_commit(tmp_path: Path) -> None:
    results.store("ws01", "drift", (PASS,), tmp_path)
    (host,) = results.load(tmp_path)
    check = host.checks["drift"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", check.taken)
    assert re.fullmatch(r"[0-9a-f]{7,}\+?|unknown", check.commit)


def test_the_latest_run_of_a_check_replaces_it_and_keeps_the_others(tmp_path: Path) -> None:
    results.store("ws01", "drift", (FAIL,), tmp_path)
    results.store("ws01", "decode", (PASS,), tmp_path)
    results.store("ws01", "drift", (PASS,), tmp_path)
    (host,) = results.load(tmp_path)
    assert {name: check.verdicts for name, check in host.checks.items()} == {"drift": (PASS,), "decode": (PASS,)}


@pytest.mark.parametrize("name", ["@docker/x", "../../etc/passwd", "a b", "ws01"])
def test_any_host_name_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    results.store(name, "drift", (PASS,), tmp_path / "results")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    assert [host.host for host in results.load(tmp_path / "results")] == [name]


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"no results: seen no \*\.json in .*, wanted a finished run; run deploy\.py"):
        list(results.load(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"host": "x", "checks": []}',
        "[" * 100_000,
        '{"host": "x", "checks": {"drift": {"taken": "", "commit": "", "verdicts": [{"key": "", "result": "good", '
        '"seen": "", "wanted": "", "why": ""}]}}}',
        '{"host": "x", "checks": {"drift": {}}}',
        "\x00",
    ],
)
def test_a_broken_file_is_one_line_and_does_not_stop_the_next_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "ws01.json").write_text(text)
    with pytest.raises(Refused, match=r"ws01\.json: seen .*; delete it and run again"):
        list(results.load(tmp_path))
    results.store("ws01", "drift", (PASS,), tmp_path)
    assert json.loads((tmp_path / "ws01.json").read_text())["host"] == "ws01"


SHEET = (Item("turbo", "change", "off", "on", "BIOS", "enable", "speed"), Item("hyperthreads", "good", "on", "on"))


def test_the_worksheet_is_kept_beside_the_checks(tmp_path: Path) -> None:
    results.store_worksheet("ws01", SHEET, tmp_path)
    results.store("ws01", "drift", (PASS,), tmp_path)
    (host,) = results.load(tmp_path)
    assert (host.worksheet, host.checks["drift"].verdicts) == (SHEET, (PASS,))
    assert report.all_good([host]), "it stops nothing"
    console = Console(width=120, record=True, file=StringIO())
    for table in report.verdict_tables([host]):
        console.print(table)
    shown = console.export_text()
    assert "turbo: seen off, wanted on; BIOS: enable. Worth: speed" in shown


def test_nothing_judged_is_not_good(tmp_path: Path) -> None:
    assert not report.all_good([])
    assert not report.all_good([results.HostResults("ws01", {})])
    results.store("ws01", "admission", (PASS,), tmp_path)
    assert not report.all_good(results.load(tmp_path)), "admitted is not proven"
    results.store("ws01", "drift", (), tmp_path)
    assert not report.all_good(results.load(tmp_path))


def test_what_looks_like_markup_is_shown(tmp_path: Path) -> None:
    results.store("ws01", "drift", (Verdict("x", "fail", "[always] [/b]", "[never]", ""),), tmp_path)
    console = Console(width=120, record=True, file=StringIO())
    for table in report.verdict_tables(results.load(tmp_path)):
        console.print(table)
    assert "[always] [/b]" in console.export_text()


def test_only_good_verdicts_are_good(tmp_path: Path) -> None:
    for result, good in (("pass", True), ("skipped", True), ("fail", False), ("inconclusive", False)):
        results.store("ws01", "drift", (PASS, Verdict("x", result, "", "", "")), tmp_path)
        assert report.all_good(results.load(tmp_path)) == good


def test_git_is_asked_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "abc\n")

    monkeypatch.setattr(results.subprocess, "run", run)
    results._commit.cache_clear()
    for host in ("ws01", "ws02"):
        results.store(host, "drift", (), tmp_path)
    results._commit.cache_clear()
    assert [found.checks["drift"].commit for found in results.load(tmp_path)] == ["abc", "abc"]
    assert len(asked) == 1


def test_figures_are_kept_by_name_the_latest_ones(tmp_path: Path) -> None:
    for value in range(results.FIGURES + 2):
        results.store_figure("ws01", "top-4", float(value), tmp_path)
    results.store_figure("ws01", "top-6", 19.0, tmp_path)
    results.store("ws01", "drift", (), tmp_path)
    assert results.figures("ws01", "top-6", tmp_path) == (19.0,)
    assert results.figures("ws01", "top-4", tmp_path) == tuple(float(value) for value in range(2, results.FIGURES + 2))
    assert results.figures("ws02", "top-4", tmp_path) == ()
    assert results.verdicts("ws01", tmp_path) == {"drift": ()}
    assert results.verdicts("ws02", tmp_path) == {}


@pytest.mark.parametrize("kept", ["3", '{"top-4": 3}', '{"top-4": [3, {"value": "x"}]}'])
def test_a_broken_history_is_none(tmp_path: Path, kept: str) -> None:
    (tmp_path / "ws01.json").write_text(f'{{"host": "ws01", "checks": {{}}, "figures": {kept}}}')
    assert results.figures("ws01", "top-4", tmp_path) == ()
    results.store_figure("ws01", "top-4", 28.0, tmp_path)
    assert results.figures("ws01", "top-4", tmp_path) == (28.0,)
