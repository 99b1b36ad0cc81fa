"""A package as one program: what is sent to a host, where nothing of ktfleet is installed."""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files

PROBE = "ktfleet.host.probe"
WEIGHTS = "ktfleet.weights.program"
STACK = "ktfleet.stack.program"
SERVER = "ktfleet.server.program"

SHARED = (
    *(f"ktfleet.measure.{name}" for name in ("serving", "ask", "stream", "http_errors", "chunks", "rates", "sse")),
    *("ktfleet.progress", "ktfleet.translate", "ktfleet.problem"),
)
"""The modules that a program may import from outside its package. What imports another one stands before it."""

_IMPORT = re.compile(r"^from ([\w.]+) import ([\w, ]*)", re.MULTILINE)

_LOADER = """\
import sys, types
SOURCES = {sources!r}
for name in ({parents}, *SOURCES):
    module = sys.modules.setdefault(name, types.ModuleType(name))
    module.__path__ = []
    if "." in name:
        setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
for name, source in SOURCES.items():
    exec(compile(source, name, "exec", dont_inherit=True), sys.modules[name].__dict__)
sys.exit(sys.modules[{main!r}].main())
"""


@cache
def source(main: str = PROBE) -> str:
    """Python source for `python3 -I`, which calls the main() of a module or package.

    Its modules run in the order of their imports.
    """
    package = main if main == PROBE else main.rpartition(".")[0]
    texts = {
        package if path.name == "__init__.py" else f"{package}.{path.name.removesuffix('.py')}": path.read_text("utf-8")
        for path in files(package).iterdir()
        if path.name.endswith(".py")
    }
    for module in SHARED:
        if any(module in _imports(text) for text in texts.values()):
            folder, _, name = module.rpartition(".")
            texts[module] = files(folder).joinpath(f"{name}.py").read_text("utf-8")
    # Sorted: the same source in every process, or each run would place another file on the host.
    needs = {name: sorted(_imports(text) & texts.keys() - {name}) for name, text in sorted(texts.items())}
    order = [name for name in TopologicalSorter(needs).static_order() if name in texts]
    parents = {name[: match.start()] for name in texts for match in re.finditer(r"\.", name)} | {package}
    return _LOADER.format(
        sources={name: texts[name] for name in order},
        parents=", ".join(map(repr, sorted(parents))),
        main=main,
    )


def _imports(text: str) -> set[str]:
    """The modules that `from x import y` can mean."""
    found = set()
    for module, names in _IMPORT.findall(text):
        found |= {module, *(f"{module}.{name.strip()}" for name in names.split(","))}
    return found
