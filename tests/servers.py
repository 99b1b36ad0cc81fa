"""A wheel whose `python -m sglang.launch_server` is the stand-in of these tests."""

from __future__ import annotations

from pathlib import Path

from tests import wheels

HERE = Path(__file__).parent


def write_server(folder: Path) -> Path:
    """The wheel."""
    return wheels.write_wheel(folder, "stand_in_server", more=modules())


def modules() -> dict[str, str]:
    """Path -> text of what it holds."""
    return {
        "sglang/__init__.py": "",
        "sglang/engine.py": (HERE / "engine.py").read_text(),
        "sglang/launch_server.py": (HERE / "stand_in.py").read_text(),
    }
