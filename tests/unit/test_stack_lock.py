"""The locks of the server's environment: whole, hashed, of one release, without a word of where they came from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "ktfleet/locks"
WANTED = (FOLDER / "stack.in").read_text()
FORKS = {"transformers-kt": "transformers", "accelerate-kt": "accelerate", "nvidia-ml-py": "pynvml"}
"""Distributions that own a module, and the other distribution that owns the same one."""

pythons = pytest.mark.parametrize("python", ["3.11", "3.12"])


def text(python: str) -> str:
    return (FOLDER / f"stack-{python}.txt").read_text()


def locked(python: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text(python), re.MULTILINE))


@pythons
def test_every_pin_of_the_input_is_in_the_lock(python: str) -> None:
    pins = dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==(\S+)$", WANTED, re.MULTILINE))
    assert len(pins) == 6
    assert {name: locked(python).get(name) for name in pins} == pins
    names = re.findall(r"^([a-z0-9-]+)", WANTED, re.MULTILINE)
    assert set(names) <= set(locked(python))


@pythons
def test_every_package_is_pinned_and_hashed_and_nothing_else_is_said(python: str) -> None:
    lines = [line.strip() for line in text(python).splitlines() if line.strip() and not line.lstrip().startswith("#")]
    requirement, digest = (
        re.compile(r"[a-z0-9.-]+==[0-9][A-Za-z0-9.+!]* \\"),
        re.compile(r"--hash=sha256:[0-9a-f]{64}( \\)?"),
    )
    assert [line for line in lines if not requirement.fullmatch(line) and not digest.fullmatch(line)] == []
    for package in re.split(r"\n(?=[a-z0-9.-]+==)", text(python))[1:]:
        assert "--hash=sha256:" in package, package.splitlines()[0]
    assert "://" not in text(python)


@pythons
def test_no_two_distributions_own_the_same_module(python: str) -> None:
    assert set(FORKS) <= set(locked(python))
    assert set(FORKS.values()).isdisjoint(locked(python))


@pythons
def test_what_belongs_together_has_one_version(python: str) -> None:
    there = locked(python)
    assert there["flashinfer-python"] == there["flashinfer-cubin"]
    assert there["ktransformers"] == there["kt-kernel"] == there["sglang-kt"]


def test_both_pythons_get_the_same_server() -> None:
    """Only what has no wheel for both in common may differ."""
    one, other = locked("3.11"), locked("3.12")
    differing = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    assert differing.isdisjoint({"torch", "triton", "sglang-kt", "kt-kernel", "transformers-kt", "tilelang"})


def test_every_pin_of_the_input_has_its_reason() -> None:
    for block in WANTED.split("\n\n"):
        pinned = [line for line in block.splitlines() if line and not line.startswith("#")]
        assert not pinned or block.startswith("#"), pinned
