"""The measurements that run on a host where nothing of ktfleet is installed: one zip file for `python3 -I`.

Which module goes in: everything here but what only the controller needs. They use the standard library alone.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.resources import files

PACKAGE = "ktfleet.measure"
HERE_ONLY = ("bundle.py", "recorded_answers.py", "transcript.py", "gpu.py", "gpu.cu", "stack.py")
"""gpu.py and stack.py run by themselves: the one beside pynvml, the other with the Python that it is about."""


@cache
def zipped() -> bytes:
    """The same bytes for the same sources: a host has the current ones when the digest is the same."""
    sources = {
        path.name: path.read_bytes()
        for path in sorted(files(PACKAGE).iterdir(), key=lambda path: path.name)
        if path.is_file() and path.name not in HERE_ONLY and not path.name.endswith("_record.py")
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {
            "__main__.py": b"import sys\nfrom ktfleet.measure.__main__ import main\nsys.exit(main())\n",
            "ktfleet/__init__.py": b"",
            **{f"ktfleet/measure/{name}": data for name, data in sources.items()},
        }.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # 1980-01-01: a date would change the digest
    return out.getvalue()
