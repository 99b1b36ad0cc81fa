"""The overlay: what is loaded into the server's processes, and nowhere else.

sglang imports the package that SGLANG_EXTERNAL_MODEL_PACKAGE names into every process that knows its models. An error
here ends that process; one in a module of the package would be passed over, and the server would run without the
overlay. So everything is checked and put in place here, before anything else of it can be looked at.
"""

import os

if os.environ.get("SGLANG_EXTERNAL_MODEL_PACKAGE") == __name__:
    try:
        from ktfleet.runtime.start import start
    except Exception as error:
        seen = " ".join(f"{type(error).__name__}: {error}".split())
        line = f"its modules: seen {seen}, wanted all of them to load; run deploy.py again"
        raise SystemExit(f"ktfleet overlay: {line}") from error

    start()
