"""The error grammar: `what is wrong: seen X, wanted Y; do Z`, one line a problem."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something a person has to change. `do` is the action, in the imperative."""

    what: str
    seen: str
    wanted: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}: seen {self.seen}, wanted {self.wanted}; {self.do}"


class Refused(Exception):
    """Problems that stop the work before anything is touched. Never empty."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
