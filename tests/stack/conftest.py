"""An environment with the locked stack."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def stack_python() -> Path:
    """The python of an environment that holds it; KTFLEET_STACK_PYTHON names one."""
    named = os.environ.get("KTFLEET_STACK_PYTHON")
    if named is None:
        pytest.skip("no environment with the stack: KTFLEET_STACK_PYTHON names none")
    return Path(named)
