"""The house: arrows point one way, and only the edge knows pyinfra. The rules stand in pyproject.toml."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [LINTER, "--no-cache", "--config", folder / "pyproject.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(folder)})


def test_the_house_is_in_order() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("room", "line"), [
    ("ktfleet/config.py", "import ktfleet.plan"),
    ("ktfleet/host/state.py", "from ktfleet import config"),
    ("ktfleet/plan/cores.py", "import ktfleet.pyinfra_api.facts"),
    ("ktfleet/plan/settings.py", "from ktfleet import verdict"),
    ("ktfleet/verdict.py", "import pyinfra"),
    ("ktfleet/cli.py", "from pyinfra.api import deploy"),
    ("ktfleet/report.py", "import tasks.kernel"),
    ("ktfleet/measure/gpu_record.py", "from ktfleet import verdict"),
    ("ktfleet/judge/gpu/card.py", "from ktfleet import results"),
    ("ktfleet/translate.py", "from ktfleet import config"),
    ("tasks/cpu.py", "from checks import drift"),
])  # fmt: skip
def test_a_wrong_arrow_is_found(tmp_path: Path, room: str, line: str) -> None:
    for name in ("ktfleet", "tasks", "checks"):
        copytree(ROOT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    with (tmp_path / room).open("a") as file:
        file.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_every_module_of_the_package_is_under_the_pyinfra_rule() -> None:
    """A new module has to be named in the rule, or be the edge."""
    rule = (ROOT / "pyproject.toml").read_text().partition('name = "Only the edge knows pyinfra"')[2]
    for path in (ROOT / "ktfleet").iterdir():
        if path.name not in ("pyinfra_api", "__init__.py", "__pycache__"):
            assert f'"ktfleet.{path.stem}"' in rule, path.name
