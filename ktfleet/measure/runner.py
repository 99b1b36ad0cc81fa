"""Runs inside the sandbox: reads {"candidates", "function", "calls"}, prints one line of JSON.

It shares its process with the program that it runs, so nothing here is to be trusted: what has to come out is not
known in here, and what comes out is compared outside.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Try the candidates until one has the function, call it for every set of arguments, print what came back."""
    order = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    sys.setrecursionlimit(20_000)
    function, why = None, "no code"
    for code in order["candidates"]:
        try:
            function, why = load(code, order["function"]), "no function " + order["function"]
        except BaseException as error:
            why = said(error)
        if function is not None:
            break
    results = [] if function is None else [call(function, arguments) for arguments in order["calls"]]
    out.write(json.dumps({"why": None if function else why, "results": results}))
    out.flush()
    os._exit(0)


def load(code: str, name: str) -> Any:
    """Run the code, find the function: by its name, as a method of a class Solution, or as the only one there is."""
    space: dict[str, Any] = {"__name__": "answer"}
    exec(compile(code, "answer", "exec"), space)
    parts = name.split("_")
    camel = parts[0] + "".join(part.title() for part in parts[1:])
    places = [space]
    if isinstance(space.get("Solution"), type):
        solution = space["Solution"]()
        places.append({key: getattr(solution, key) for key in dir(solution) if not key.startswith("_")})
    for place in places:
        for key in (name, camel):
            if callable(place.get(key)):
                return place[key]
    own = [value for key, value in places[-1].items() if callable(value) and not key.startswith("_")
           and getattr(value, "__module__", "") in ("answer", None) and not isinstance(value, type)]  # fmt: skip
    return own[0] if len(own) == 1 else None


def call(function: Any, arguments: Any) -> Any:
    """["returned", value] or ["raised", why]."""
    try:
        return ["returned", plain(function(*arguments))]
    except BaseException as error:
        return ["raised", said(error)]


def plain(value: Any) -> Any:
    """As JSON knows it; what it does not know, as text in a dictionary, which equals nothing."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) in (list, tuple):
        return [plain(one) for one in value]
    if type(value).__name__ in ("dict_values", "map", "filter", "zip", "generator"):
        return [plain(one) for one in value]
    return {"type": type(value).__name__, "repr": repr(value)[:200]}


def said(error: BaseException) -> str:
    """One short line."""
    return (type(error).__name__ + ": " + " ".join(str(error).split()))[:200]


if __name__ == "__main__":
    main()
