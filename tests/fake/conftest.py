"""What runs store goes into a folder of the test's own."""

from pathlib import Path

import pytest

from ktfleet import results


@pytest.fixture(autouse=True)
def results_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's results are; programs that it starts use it too."""
    folder = tmp_path / "results"
    monkeypatch.setattr(results, "FOLDER", folder)
    monkeypatch.setenv("KTFLEET_RESULTS", str(folder))
    return folder
