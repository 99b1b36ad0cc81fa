"""The generated commands: which, and what they really do when a shell runs them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktfleet import plan, recipes
from ktfleet.config import Data, Gpu, Key, Server, Workstation
from ktfleet.host.state import Unit
from ktfleet.plan import changes, files, places
from ktfleet.plan.files import File
from ktfleet.plan.gpu import changes as gpu
from ktfleet.plan.server import changes as server
from ktfleet.plan.settings import BANNED_CPUS, GOVERNOR
from ktfleet.plan.stack import changes as stack
from ktfleet.plan.weights import changes as weights
from ktfleet.sources import Weights
from tests.states import converged, with_data_disk, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
EVERY = (
    changes.remember,
    changes.place(places.WRITE_SYSFS, places.SYSCTLS, *places.SYSFS.values()),
    changes.enable_boot_unit,
    changes.write_command_line,
    changes.set_values("memory"),
    changes.set_values("cpu"),
    changes.set_values("power"),
    changes.set_values("system"),
    changes.balance_interrupts,
    changes.place(places.APT),
    changes.limit_journal,
    changes.prepare_server,
    gpu.fetch_keyring,
    gpu.add_repository,
    gpu.install,
    gpu.blacklist,
    gpu.load,
    gpu.persist,
    gpu.limit_power,
    weights.place_files,
    stack.place_files,
)
LIMITED = Gpu(power_limit_w=450)


def made(**config: Any) -> plan.Plan:
    return plan.make(workstation(), Workstation(**config), RECIPE)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment}
    )


@pytest.mark.parametrize("config", [{}, {"kernel_command_line": ("mitigations",)}, {"gpu": None}, {"gpu": LIMITED}])
def test_a_converged_host_gets_no_command(config: dict[str, Any]) -> None:
    wanted = made(**config)
    state = converged(wanted)
    assert [change(wanted, state) for change in EVERY] == [()] * len(EVERY)


def test_a_fresh_host_gets_each_change() -> None:
    wanted = made(kernel_command_line=("mitigations",), gpu=LIMITED)
    state = workstation()
    state = state.model_copy(update={"links": dict.fromkeys(state.links)})  # no time service either
    assert all(change(wanted, state) for change in EVERY if change is not weights.place_files)


@pytest.mark.parametrize("path", [path for path in files.paths() if path != places.COMMAND_LINE])
def test_each_file_is_placed_by_exactly_one_change(path: str) -> None:
    public = Server(key=Key(command=("true",)))
    wanted = made(gpu=LIMITED, data=Data(mount="/srv/models", label="models"), weights=Weights(), server=public)
    state = with_data_disk(converged(wanted), wanted)
    state = state.model_copy(update={"files": {**state.files, path: "other"}})
    every = (*EVERY, server.enable, server.serve_front)
    commands = [command for change in every for command in change(wanted, state)]
    assert sum(f" {path}" in command and "mv -f" in command for command in commands) == 1


def test_only_values_that_differ_are_set() -> None:
    wanted = made()
    state = converged(wanted)
    state = state.model_copy(update={"sysctl": {**state.sysctl, "vm.swappiness": "60"}})
    assert changes.set_values("memory")(wanted, state) == ("sysctl -q -w vm.swappiness=1",)
    assert changes.set_values("cpu")(wanted, state) == ()


def test_only_units_that_are_not_masked_are_masked() -> None:
    wanted = made()
    state = converged(wanted)
    state = state.model_copy(update={"links": {**state.links, places.unit_file("suspend.target"): None}})
    assert changes.set_values("power")(wanted, state) == ("systemctl -q mask suspend.target",)


def test_a_lost_governor_is_set_again() -> None:
    wanted = made()
    state = converged(wanted)
    path = GOVERNOR.replace("cpu*", "cpu1")
    state = state.model_copy(update={"sysfs": {**state.sysfs, path: "powersave"}})
    assert changes.set_values("cpu")(wanted, state) == (f"{places.WRITE_SYSFS} {places.SYSFS['cpu']}",)


def test_an_opt_in_that_is_taken_back_removes_the_drop_in() -> None:
    state = converged(made(kernel_command_line=("mitigations",)))
    (command,) = changes.write_command_line(made(), state)
    assert f"rm -f {places.COMMAND_LINE} && if update-grub" in command


def test_a_drop_in_that_grub_cfg_does_not_show_is_generated_again() -> None:
    wanted = made(kernel_command_line=("mitigations",))
    state = converged(wanted)
    state = state.model_copy(update={"boot": state.boot.model_copy(update={"next_cmdline": "ro"})})
    assert len(changes.write_command_line(wanted, state)) == 1


def test_the_present_values_are_recorded_once() -> None:
    wanted, state = made(), workstation()
    (command,) = changes.remember(wanted, state)
    assert '"vm.swappiness": "60"' in command
    known = state.model_copy(update={"before": {"vm.swappiness": {"vm.swappiness": "33"}}})
    (command,) = changes.remember(wanted, known)
    assert '"vm.swappiness": "33"' in command, "an older record is kept"
    assert '"60"' not in command


def test_a_file_that_will_be_replaced_is_kept_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "etc" / "it's mine"
    mine.parent.mkdir()
    mine.write_text("the owner's")
    monkeypatch.setattr(changes, "BEFORE", str(tmp_path / "before.json"))
    monkeypatch.setattr(changes, "BEFORE_FILES", str(tmp_path / "before"))
    state = workstation().model_copy(update={"files": {str(mine): "a digest", "/etc/none": None}})
    for command in changes.remember(made(), state):
        assert shell(command).returncode == 0
    record = json.loads((tmp_path / "before.json").read_text())
    assert record["files"] == {str(mine): "a digest", "/etc/none": None}
    assert Path(f"{tmp_path}/before{mine}").read_text() == "the owner's"
    # Later, when ktfleet's own file stands there, the record does not change.
    known = state.model_copy(update={"before": record, "files": {str(mine): "ktfleet's", "/etc/none": "ktfleet's"}})
    assert changes.remember(made(), known) == ()


def test_a_new_row_or_file_is_recorded_beside_the_old_ones() -> None:
    state = workstation()
    old = {"vm.swappiness": {"vm.swappiness": "33"}, "files": {places.SYSCTLS: "d"}}
    files_now = {**state.files, places.SYSCTLS: "ours"}
    (command,) = changes.remember(made(), state.model_copy(update={"before": old, "files": files_now}))
    assert f'"{places.SYSCTLS}": "d"' in command
    assert f'"{places.APT}": null' in command


@pytest.mark.parametrize(("installed", "installs", "fine"), [(True, None, True), (False, 0, True), (False, 100, False)])
def test_a_missing_service_is_installed_first(
    tmp_path: Path, installed: bool, installs: int | None, fine: bool
) -> None:
    state = workstation()
    state = state.model_copy(update={"links": {**state.links, places.TIME_SERVICES[0]: None}})
    (command,) = changes.set_values("system")(made(), state)
    programs = {
        "systemctl": f'echo "systemctl $*" >>{tmp_path}/calls; [ "$1" != cat ] || exit {0 if installed else 1}',
        "apt-get": f'echo "apt-get $*" >>{tmp_path}/calls; exit {installs or 0}',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = shell(command, PATH=f"{tmp_path}:/usr/bin:/bin")
    calls = (tmp_path / "calls").read_text()
    assert (done.returncode == 0) == fine
    assert ("install -y systemd-timesyncd" in calls) == (installs == 0)
    assert ("systemctl -q enable --now systemd-timesyncd.service" in calls) == fine
    assert "apt-get" not in calls or "DPkg::Lock::Timeout=600" in calls


def test_another_time_service_is_as_good() -> None:
    state = workstation()
    links = {
        **state.links,
        places.TIME_SERVICES[0]: None,
        places.TIME_SERVICES[1]: "/lib/systemd/system/chrony.service",
    }
    assert changes.set_values("system")(made(), state.model_copy(update={"links": links})) == ()


def test_irqbalance_is_restarted_when_it_runs_with_other_cpus() -> None:
    wanted = made()
    state = converged(wanted)
    stale = Unit(active=True, environment={BANNED_CPUS: "0-3"})
    state = state.model_copy(update={"units": {**state.units, places.IRQBALANCE_UNIT: stale}})
    (command,) = changes.balance_interrupts(wanted, state)
    assert "systemctl restart irqbalance.service" in command


@settings(max_examples=25)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_any_content_arrives_unchanged(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    target = tmp_path_factory.mktemp("place") / "a b'c" / "file$HOME"
    done = shell(changes.write(File(str(target), content, "0640")))
    assert (done.returncode, done.stderr) == (0, "")
    assert target.read_bytes() == content.encode()
    assert target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in target.parent.iterdir()] == [target.name], "nothing temporary is left"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    (tmp_path / ".file.ktfleet-new").mkdir()
    assert shell(changes.write(File(str(target), "new", "0644"))).returncode != 0
    assert target.read_text() == "old"


class Grub:
    """A drop-in's folder and an update-grub that records its calls and exits as told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drop_in = folder / "zz-ktfleet.cfg"
        self.called = folder / "called"
        self.bin = folder / "bin"
        self.bin.mkdir()
        template = (files.TEMPLATES / "etc/default/grub.d/zz-ktfleet.cfg.j2").read_text()
        templates = folder / "templates"
        place = templates / f"{str(self.drop_in)[1:]}.j2"
        place.parent.mkdir(parents=True)
        place.write_text(template)
        monkeypatch.setattr(changes, "COMMAND_LINE", str(self.drop_in))
        monkeypatch.setattr(changes, "render", lambda plan, path: files.render(plan, path, templates))

    def run(self, status: int, **config: Any) -> subprocess.CompletedProcess[str]:
        update = self.bin / "update-grub"
        update.write_text(f"#!/bin/sh\ncp {self.drop_in} {self.called} 2>/dev/null\nexit {status}\n")
        update.chmod(0o755)
        (command,) = changes.write_command_line(made(**config), workstation())
        return shell(command, PATH=f"{self.bin}:/usr/bin:/bin")

    @property
    def listing(self) -> set[str]:
        return {path.name for path in self.drop_in.parent.iterdir()} - {"bin", "templates", "called"}


@pytest.fixture
def grub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grub:
    return Grub(tmp_path, monkeypatch)


def test_update_grub_sees_the_new_drop_in(grub: Grub) -> None:
    assert grub.run(0, kernel_command_line=("mitigations",)).returncode == 0
    assert 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT mitigations=off"' in grub.called.read_text()
    assert grub.listing == {"zz-ktfleet.cfg"}


def test_a_failed_update_grub_puts_the_old_drop_in_back(grub: Grub) -> None:
    grub.drop_in.write_text("old")
    done = grub.run(1, kernel_command_line=("mitigations",))
    assert done.returncode == 1
    assert "update-grub failed" in done.stderr
    assert (grub.drop_in.read_text(), grub.listing) == ("old", {"zz-ktfleet.cfg"})


def test_a_failed_first_update_grub_leaves_no_drop_in(grub: Grub) -> None:
    assert grub.run(1, kernel_command_line=("mitigations",)).returncode == 1
    assert grub.listing == set()


def test_the_record_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "BEFORE", str(tmp_path / "lib" / "before.json"))
    (command,) = changes.remember(made(), workstation())
    assert shell(command).returncode == 0
    record = json.loads((tmp_path / "lib" / "before.json").read_text())
    assert record["vm.swappiness"] == {"vm.swappiness": "60"}
    assert len(record[GOVERNOR]) == 80
