"""The probe as one program: what is sent to a host, where nothing of ktfleet is installed."""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files

PACKAGE = "ktfleet.host.probe"

_LOADER = """\
import sys, types
SOURCES = {sources!r}
for name in ("ktfleet", "ktfleet.host", *SOURCES):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in SOURCES.items():
    exec(compile(source, name, "exec", dont_inherit=True), sys.modules[name].__dict__)
sys.exit(sys.modules[{package!r}].main())
"""


@cache
def source() -> str:
    """Python source for `python3 -I -c`. Its modules run in the order of their imports, the package itself last."""
    texts = {
        PACKAGE if path.name == "__init__.py" else f"{PACKAGE}.{path.name.removesuffix('.py')}": path.read_text("utf-8")
        for path in files(PACKAGE).iterdir()
        if path.name.endswith(".py")
    }
    needs = {name: set(re.findall(rf"^from ({re.escape(PACKAGE)}[.\w]*) import", text, re.MULTILINE))
             for name, text in texts.items()}  # fmt: skip
    return _LOADER.format(
        sources={name: texts[name] for name in TopologicalSorter(needs).static_order()}, package=PACKAGE
    )
