"""Whether upstream changed: by what a function does, not by how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktfleet.runtime.pins import LENGTH, Pin, digest, drift, folders
from ktfleet.runtime.upstream import PINS

SOURCE = '''
"""A module."""
import os


class Wrapper:
    """A class."""

    limit: float = 1.0

    def apply(self, x, *, y=2):
        """What it does."""
        # a comment
        return f"{x + y:>{3}}" if x else [n for n in (1, 2)]

    async def later(self):
        pass


@cached
def select(ids):
    return ids[0]
'''


@pytest.mark.parametrize("name", ["Wrapper", "Wrapper.apply", "Wrapper.later", "select"])
def test_how_it_is_written_does_not_matter(name: str) -> None:
    other = SOURCE.replace("# a comment", "# another").replace('"""What it does."""', '"""Nothing\nof the sort."""')
    other = other.replace('"""A class."""', "").replace("(self, x, *, y=2)", "(\n        self, x, *, y = 2,\n    )")
    found = digest(SOURCE, name)
    assert found is not None
    assert len(found) == LENGTH
    assert digest(other, name) == found


@pytest.mark.parametrize(("name", "old", "new"), [
    ("Wrapper.apply", "x + y", "x - y"), ("Wrapper.apply", "y=2", "y=3"), ("Wrapper.apply", "*, y", "y"),
    ("Wrapper.apply", ":>{3}", ":<{3}"), ("Wrapper", "1.0", "2.0"), ("Wrapper", "x + y", "x - y"),
    ("select", "ids[0]", "ids[1]"), ("select", "@cached\n", ""), ("Wrapper.later", "async ", ""),
])  # fmt: skip
def test_what_it_does_matters(name: str, old: str, new: str) -> None:
    assert old in SOURCE
    assert digest(SOURCE.replace(old, new), name) != digest(SOURCE, name)


def test_the_last_one_of_a_name_counts() -> None:
    again = f"{SOURCE}\n\ndef select(ids):\n    return None\n"
    assert digest(again, "select") != digest(SOURCE, "select")


@pytest.mark.parametrize("name", ["other", "Wrapper.other", "select.apply", "Wrapper.apply.x"])
def test_what_is_not_there_is_none(name: str) -> None:
    assert digest(SOURCE, name) is None


def pin(name: str = "select", value: str | None = None, vital: bool = True) -> Pin:
    return Pin("upstream", "part/file.py", name, value or digest(SOURCE, "select") or "", "it is replaced", vital)


def seen(where: dict[str, Path]) -> str:
    ((_, problem),) = drift((pin(),), where)
    return problem.seen


def test_drift_names_what_changed_and_what_depends_on_it(tmp_path: Path) -> None:
    file = tmp_path / "part" / "file.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    where = {"upstream": tmp_path}
    assert list(drift((pin(),), where)) == []
    file.write_text(SOURCE.replace("ids[0]", "ids[1]"))
    ((found, problem),) = drift((pin(),), where)
    assert found == pin()
    assert problem.what == "upstream/part/file.py: select (it is replaced)"
    assert problem.seen != problem.wanted == pin().digest
    for text, told in (("def other(): ...", "no such name"), ("def (", "a file that cannot be read (syntaxerror)")):
        file.write_text(text)
        assert seen(where) == told
    file.write_bytes(b"\xff\xfe")
    assert seen(where) == "a file that cannot be read (unicodedecodeerror)"
    file.unlink()
    assert seen(where) == "a file that cannot be read (no such file or directory)"
    assert seen({}) == "no such package"


def test_packages_are_found_without_importing_them() -> None:
    found = folders(frozenset({"ktfleet", "no_such_package"}))
    assert found == {"ktfleet": Path(__file__).parents[3] / "ktfleet"}


def test_the_table_is_well_formed() -> None:
    assert len({pin.place for pin in PINS}) == len(PINS)
    assert all(len(pin.digest) == LENGTH and pin.why for pin in PINS)
    assert {"select_deferred_experts", "mask_and_remap_expert_ids"} <= {pin.name.split(".")[-1] for pin in PINS}
