"""The table, and what it becomes for each distribution: tests/golden/gpu. Rewritten with KTFLEET_GOLDEN=1."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import files, make, places
from ktfleet.plan.changes import place
from ktfleet.plan.gpu import changes
from ktfleet.plan.gpu.packages import TABLE, Fact, patterns
from ktfleet.plan.gpu.wanted import upstream
from ktfleet.plan.refusals import SUPPORTED
from tests.unit.plan.gpu.hosts import RECIPE, host, made

GOLDEN = Path(__file__).parents[3] / "golden" / "gpu"
FILES = (places.NVIDIA_SOURCE, places.NVIDIA_PIN, places.NOUVEAU_BLACKLIST, places.PERSISTENCED, places.POWER_LIMIT)
HOSTS: dict[str, HostState] = {
    **{"-".join(key): host(*key) for key in TABLE},
    "ubuntu-22.04-hwe": host("ubuntu", "22.04", ("linux-image-generic-hwe-22.04",)),
    "ubuntu-24.04-two-kernels": host("ubuntu", "24.04", ("linux-image-generic", "linux-image-generic-hwe-24.04")),
    "debian-12-cloud": host("debian", "12", ("linux-image-cloud-amd64",)),
}


@pytest.mark.parametrize("name", HOSTS)
def test_each_distribution_gets_what_its_golden_files_show(name: str) -> None:
    plan = made(HOSTS[name], power_limit_w=450)
    assert plan.driver is not None
    texts = {path: files.render(plan, path).content or "" for path in FILES}
    texts["/packages"] = "".join(f"{package}\n" for package in plan.driver.packages)
    folder = GOLDEN / name
    if os.environ.get("KTFLEET_GOLDEN"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            (folder / Path(path).name).write_text(text)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        Path(path).name: text for path, text in texts.items()
    }


def test_the_table_has_every_supported_distribution() -> None:
    assert set(TABLE) == {(name, version) for name, versions in SUPPORTED.items() for version in versions}


def test_every_fact_has_a_source() -> None:
    for row in TABLE.values():
        facts = [getattr(row, field.name) for field in fields(row) if field.name != "note"]
        assert all(isinstance(fact, Fact) and len(fact.source) > 20 for fact in facts)


def test_no_two_distributions_share_a_keyring_or_a_folder() -> None:
    for name in ("keyring", "folder"):
        values = [getattr(row, name).value for row in TABLE.values() if getattr(row, name).value]
        assert len(set(values)) == len(values)


def test_the_second_tier_is_told() -> None:
    noted = {key for key in TABLE if any("second tier" in note for note in made(host(*key)).notes)}
    assert noted == {("debian", "13"), ("ubuntu", "26.04")}


def test_no_package_brings_a_driver_by_surprise_or_of_one_kernel_release() -> None:
    for state in HOSTS.values():
        names = made(state).driver.packages  # type: ignore[union-attr]
        assert not {"cuda", "cuda-drivers"} & set(names)
        assert not any("6.1.0" in name for name in names)


def test_the_probe_tells_every_package_that_is_looked_at() -> None:
    exact = set(patterns())
    for state in HOSTS.values():
        for name in made(state).driver.packages:  # type: ignore[union-attr]
            assert name in exact or name.startswith(("nvidia-", "libnvidia-", "linux-modules-nvidia-", "cuda-"))


def test_no_nvidia_module_option_is_set() -> None:
    for state in HOSTS.values():
        assert not any("NVreg" in (files.render(made(state), path).content or "") for path in FILES)


def test_a_mirror_and_another_branch_are_configuration() -> None:
    plan = made(host("debian", "12"), repository="https://mirror.example:8443/cuda", driver_branch="595")
    assert "URIs: https://mirror.example:8443/cuda/debian12/x86_64/\n" in (
        files.render(plan, places.NVIDIA_SOURCE).content or ""
    )
    assert "Pin: version 595.*\n" in (files.render(plan, places.NVIDIA_PIN).content or "")


@pytest.mark.parametrize(("version", "wanted"), [
    ("580.95.05-0ubuntu0.24.04.1", "580.95.05"), ("1:580.95.05-1", "580.95.05"), ("590.44-1", "590.44"),
    ("20220217+3~deb12u1", None), ("6.8.0-50.51+1", None), ("11.8.89~11.8.0-5", None), ("", None),
])  # fmt: skip
def test_nvidias_version_in_a_packages(version: str, wanted: str | None) -> None:
    assert upstream(version) == wanted


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt here")
@pytest.mark.parametrize("name", HOSTS)
def test_apt_reads_the_source_and_the_pin(name: str, tmp_path: Path) -> None:
    """A repository on disk in the place of NVIDIA's: apt takes from it what the pin allows."""
    repository, state = tmp_path / "repository", HOSTS[name]
    plan = made(state)
    repository.mkdir()
    stanza = "Package: {}\nVersion: {}\nArchitecture: amd64\nMaintainer: x\nFilename: ./x.deb\nSize: 1\nSHA256: 0\n\n"
    versions = {"nvidia-smi": ("580.95.05-1", "999.1-1"), "cuda-toolkit-99": ("1", "2")}
    text = "".join(stanza.format(package, version) for package, two in versions.items() for version in two)
    (repository / "Packages").write_text(text)
    (repository / "Release").write_text("Origin: NVIDIA\nLabel: NVIDIA CUDA\n")
    made_source = (files.render(plan, places.NVIDIA_SOURCE).content or "").splitlines()
    # Only where it lies, and that it is trusted without a key, is replaced.
    lines = [line for line in made_source if not line.startswith(("URIs:", "Signed-By:"))]
    source, pin = tmp_path / "test.sources", tmp_path / "pin"
    source.write_text("\n".join([*lines, f"URIs: file:{repository}/", "Trusted: yes", ""]))
    pin.write_text(files.render(plan, places.NVIDIA_PIN).content or "")
    for folder in ("lists/partial", "archives/partial", "empty"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "status").touch()
    options = {
        "Dir::Etc::sourcelist": source, "Dir::Etc::sourceparts": tmp_path / "empty", "Dir::Etc::preferences": pin,
        "Dir::Etc::preferencesparts": tmp_path / "empty", "Dir::State::lists": tmp_path / "lists",
        "Dir::State::status": tmp_path / "status", "Dir::Cache": tmp_path, "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
    }  # fmt: skip

    def apt(*arguments: str) -> str:
        given = [f"-o{name}={value}" for name, value in options.items()]
        done = subprocess.run([*arguments[:1], *given, *arguments[1:]], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    apt("apt-get", "update")
    candidates = [line.strip() for line in apt("apt-cache", "policy", "nvidia-smi", "cuda-toolkit-99").splitlines()]
    wanted = "(none)" if state.os.id == "ubuntu" else "580.95.05-1"
    assert [line for line in candidates if line.startswith("Candidate")] == [f"Candidate: {wanted}", "Candidate: 2"]


def test_without_a_card_no_file_of_it_is_there() -> None:
    plan = make(host(), Workstation(gpu=None), RECIPE)
    assert [files.render(plan, path).content for path in FILES] == [None] * len(FILES)
    assert changes.skipped(plan) == "no driver is installed: the configuration says gpu = None"
    assert place(*FILES)(plan, host()) == ()
