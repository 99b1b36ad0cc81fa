"""Reads a command line as sglang's real parser would: by the same catalogue as ktfleet. Needs Python alone."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).with_name("flags.json")
TYPES = {"int": int, "float": float, "loads": json.loads}


class Parser(argparse.ArgumentParser):
    """Every option of the catalogue that takes a plain value; no others, and no abbreviations."""

    def __init__(self) -> None:
        super().__init__("launch_server.py", allow_abbrev=False, add_help=False)
        for option in json.loads(CATALOGUE.read_text(encoding="utf-8"))["options"]:
            if option["action"] == "true":
                self.add_argument(*option["flags"], action="store_true")
            elif option["action"] == "store":
                names = ("nargs", "choices", "required", "default")
                kind = TYPES.get(option["type"], str)
                self.add_argument(*option["flags"], type=kind, **{name: option[name] for name in names})

    def error(self, message: str) -> Any:
        """One line, without the usage of 347 options."""
        sys.exit(f"{self.prog}: error: {message}")
