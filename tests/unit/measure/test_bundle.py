"""What runs on a host: the standard library alone, one file, the same bytes each time."""

from __future__ import annotations

import ast
import io
import sys
import zipfile

from ktfleet.measure import bundle

BROUGHT = {"ktfleet/measure/api.py": "openai", "ktfleet/measure/expert_reference.py": "numpy"}
"""What these need of the server's environment, with whose Python they run."""


def test_it_imports_the_standard_library_and_itself_alone() -> None:
    archive = zipfile.ZipFile(io.BytesIO(bundle.zipped()))
    names = {name for name in archive.namelist() if name.endswith(".py")}
    assert {"ktfleet/measure/decode.py", "ktfleet/measure/stream.py", "__main__.py"} <= names
    for name in names:
        for node in ast.walk(ast.parse(archive.read(name), feature_version=(3, 10))):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in found:
                top = module.partition(".")[0]
                assert (
                    top in sys.stdlib_module_names or top == BROUGHT.get(name) or module.startswith("ktfleet.measure")
                ), f"{name}: {module}"
                if module.startswith("ktfleet.measure."):
                    assert module.replace(".", "/") + ".py" in names, f"{name}: {module}"


def test_the_same_sources_are_the_same_bytes() -> None:
    first = bundle.zipped()
    bundle.zipped.cache_clear()
    assert bundle.zipped() == first
