"""The service account: fixed numbers, nobody else's, made once."""

from __future__ import annotations

from typing import Any

import pytest

from ktfleet import plan, recipes, verdict
from ktfleet.config import Workstation
from ktfleet.host.state import Folder, HostState, User
from ktfleet.plan import account
from tests.states import converged, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")
PLAN = plan.make(workstation(), Workstation(), RECIPE)
DONE = converged(PLAN)
SOMEBODY = User(uid=1001, gid=1001, home="/home/ktfleet", shell="/bin/bash")
KEY = "account ktfleet"


def refused(**update: Any) -> list[str]:
    state = workstation().model_copy(update=update)
    return [str(problem) for problem in plan.make(state, Workstation(), RECIPE).refusals]


def test_a_fresh_host_gets_group_user_and_home_in_this_order() -> None:
    assert account.create(PLAN, workstation()) == (
        "groupadd --system --gid 790 ktfleet",
        "useradd --system --uid 790 --gid 790 --home /var/lib/ktfleet/home --shell /usr/sbin/nologin "
        "--no-create-home ktfleet",
        f"{PARENT}-m 0750 -o 790 -g 790 /var/lib/ktfleet/home",
    )


def test_a_converged_host_gets_nothing() -> None:
    assert account.create(PLAN, DONE) == ()


PARENT = "(umask 022 && mkdir -p /var/lib/ktfleet) && install -d "


@pytest.mark.parametrize(("update", "begins"), [
    ({"users": {"ktfleet": account.WANTED.model_copy(update={"shell": "/bin/bash"})}}, "usermod --gid 790"),
    ({"folders": {account.HOME: Folder(uid=0, gid=0, mode="0755")}}, PARENT),
    ({"folders": {account.HOME: None}}, PARENT),
    ({"groups": {}}, "groupadd"),
])  # fmt: skip
def test_only_what_differs_is_corrected_and_the_check_sees_it(update: dict[str, Any], begins: str) -> None:
    state = DONE.model_copy(update=update)
    (command,) = account.create(PLAN, state)
    assert command.startswith(begins)
    (judged,) = (one for one in verdict.drift(PLAN, state) if one.key == KEY)
    assert judged.result == "fail"


@pytest.mark.parametrize(("update", "line"), [
    ({"users": {"ktfleet": SOMEBODY}}, "the user ktfleet is somebody else's: seen uid 1001, wanted uid 790; rename"),
    ({"groups": {"ktfleet": 1001}}, "the group ktfleet is somebody else's: seen gid 1001, wanted gid 790; rename"),
    ({"users": {"mpd": SOMEBODY.model_copy(update={"uid": 790})}},
     "the uid 790 is somebody else's: seen mpd, wanted ktfleet with uid 790; give mpd another one (`sudo usermod -u"),
    ({"groups": {"audio2": 790}},
     "the gid 790 is somebody else's: seen audio2, wanted ktfleet with gid 790; give audio2 another one (`sudo group"),
])  # fmt: skip
def test_what_belongs_to_somebody_else_is_refused(update: dict[str, Any], line: str) -> None:
    (seen,) = refused(**update)
    assert seen.startswith(line)


@pytest.mark.parametrize(("field", "path"), [("users", "/etc/passwd"), ("groups", "/etc/group")])
def test_unread_accounts_are_unknown_and_inconclusive(field: str, path: str) -> None:
    state = DONE.model_copy(update={field: None, "unreadable": {path: "permission denied"}})
    made = plan.make(state, Workstation(), RECIPE)
    assert [str(problem) for problem in made.unknown] == [
        f"the accounts in {path} cannot be read: seen permission denied, wanted a value; "
        "probe the host as root; a captured tree has to hold it"
    ]
    (judged,) = (one for one in verdict.drift(PLAN, state) if one.key == KEY)
    assert judged.result == "inconclusive"


def test_a_converged_account_passes() -> None:
    (judged,) = (one for one in verdict.drift(PLAN, DONE) if one.key == KEY)
    assert judged.result == "pass"


def test_the_name_is_the_file_systems() -> None:
    """A state is what the probe prints: both ends use the same names."""
    assert HostState.model_validate({"schema": 1, "users": {"ktfleet": account.WANTED.model_dump()}}).users
