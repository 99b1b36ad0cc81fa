"""`python3 -m ktfleet.measure NAME ORDER`: run one measurement here and print its JSON, one line.

ORDER is one JSON object: the fields of the measurement's Order. Exit 0 with a record, whatever is in it; 2 for wrong
arguments. Only the standard library: it runs on the host. `api`, `experts` and
`trial` want the server's Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

NAMES = ("api", "bandwidth", "canary", "decode", "experts", "placement", "server", "trial")


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        name, order = arguments
        if name not in NAMES:
            raise ValueError(f"seen {name!r}, wanted one of {', '.join(NAMES)}")
        module = import_module(f"ktfleet.measure.{name}")
        ordered = _order(module.Order, json.loads(order))
    except (ValueError, TypeError) as error:
        print(f"measure: {error}; usage: NAME ORDER, ORDER a JSON object", file=sys.stderr)
        return 2
    measure: Callable[[Any], dict[str, Any]] = module.measure
    # What a model wrote can hold lone surrogates, which JSON readers refuse: they are escaped and replaced here.
    text = json.dumps(measure(ordered), ensure_ascii=False).encode("utf-8", "replace").decode()
    print(json.dumps(json.loads(text)))
    return 0


def _order(kind: Any, data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError("ORDER is no JSON object")
    unknown = set(data) - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"unknown keys in ORDER: {', '.join(sorted(unknown))}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})


if __name__ == "__main__":
    sys.exit(main())
