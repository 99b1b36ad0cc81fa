"""Why a host's server cannot be started, judged before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from ktfleet.config import Workstation
from ktfleet.host.state import HostState
from ktfleet.plan.places import FRONT_UNIT, SERVER_UNIT
from ktfleet.plan.server import key
from ktfleet.problem import Problem, Refused

OURS = (SERVER_UNIT, FRONT_UNIT)


def problems(state: HostState, config: Workstation) -> Iterator[Problem]:
    """A port that somebody else has, and a key that cannot be read. Only of a host that is to serve."""
    server = config.server
    places = {(server.listens, server.own_port)} | ({(server.host, server.port)} if server.key else set())
    for address, port in sorted(places):
        for other in state.listeners:
            if other.port == port and other.unit not in OURS and _meet(address, other.address):
                who = (
                    f"{other.name} (pid {other.pid}{f', {other.unit}' if other.unit else ''})"
                    if other.pid
                    else "somebody"
                )
                do = "stop it, or set server.port"
                yield Problem(f"port {port} is in use", f"{who} on {other.address}", f"nobody on {address}", do)
    # A command may ask a person: it is only run when the key is needed.
    if server.key and server.key.file is not None:
        try:
            key.read(server.key)
        except Refused as refused:
            yield from refused.problems


def _meet(one: str, other: str) -> bool:
    """Whether two addresses cannot be listened on at once."""
    return one == other or any(ip_address(address).is_unspecified for address in (one, other))
