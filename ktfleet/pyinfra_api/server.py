"""The server as pyinfra operations: its key, its start, its check."""

from __future__ import annotations

import hashlib
from shlex import quote

from pyinfra import host, logger, state
from pyinfra.api import FactBase, StringCommand, operation

from ktfleet import results
from ktfleet.judge.overlay import SHOWN
from ktfleet.judge.server import begun, judge
from ktfleet.measure.server import Order
from ktfleet.measure.server_record import SCHEMA, Record
from ktfleet.plan import Plan
from ktfleet.plan.places import FRONT_UNIT, MEASUREMENTS, SERVER_KEY, SERVER_STATUS
from ktfleet.plan.server import changes
from ktfleet.plan.server.key import read
from ktfleet.plan.shell import make_folder
from ktfleet.problem import Refused
from ktfleet.pyinfra_api.facts import forget, host_state
from ktfleet.pyinfra_api.measurement import Measured, command, place_measurements
from ktfleet.pyinfra_api.operations import Commands, begin, conclude, fail

LIMIT_S = 600
CHECK = "server"
_NEW = f"{SERVER_KEY}.new"
PLACE_KEY = (
    # The key comes on the standard input: no process list and no log shows it.
    f"{make_folder(SERVER_KEY.rpartition('/')[0])} && umask 077 && head -n 1 >{_NEW} && chmod 600 {_NEW} && "
    f"mv -f {_NEW} {SERVER_KEY} && {{ ! systemctl -q is-active {FRONT_UNIT} || systemctl restart {FRONT_UNIT}; }}"
)


@operation()
def place_key(plan: Plan) -> Commands:
    """Bring the key, where the host has another one or one that others may read. The front takes it by a restart."""
    seen = host_state(host, plan.config)
    wanted = plan.config.server.key
    if not state.is_executing or not plan.fronted or wanted is None or seen is None:
        return
    try:
        key = read(wanted)
    except Refused as refused:
        yield fail(*map(str, refused.problems))
        return
    digest = hashlib.sha256(f"{key}\n".encode()).hexdigest()
    if host.get_fact(PlacedKey) != f"root 600 {digest}":
        yield from begin(seen)
        yield StringCommand(PLACE_KEY, _stdin=key)


class PlacedKey(FactBase[str]):
    """Owner, mode and digest of the key on the host; the digest of a key that nobody guesses tells nothing."""

    def command(self) -> str:
        """Without one: an empty line."""
        path = quote(SERVER_KEY)
        return f'echo "$(stat -c "%U %a" {path} 2>/dev/null) $(sha256sum <{path} 2>/dev/null | cut -d " " -f 1)"'

    def process(self, output: list[str]) -> str:
        """The last line: a shell profile may have printed others."""
        return output[-1].strip() if output else ""


@operation()
def start(plan: Plan) -> Commands:
    """Start the server, or start it again, and say why. A server that is as wanted is left alone."""
    seen = host_state(host, plan.config)
    for line in changes.start(plan, seen) if seen else ():
        if seen and state.is_executing:
            logger.info(f"{host.print_prefix}the server is started: {'; '.join(changes.reasons(plan, seen))}")
            yield from begin(seen)
        yield StringCommand(line)


@operation()
def check_server(plan: Plan) -> Commands:
    """Look at the unit, ask for a token as clients do, judge, store the verdicts. While preparing: nothing."""
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the server is {'asked when this runs' if plan.server else 'not asked'}")
        return
    record = None
    if plan.server is not None:
        results.store(host.name, CHECK, begun())
        yield from place_measurements()
        forget(host)
        record = host.get_fact(AskedServer, order(plan), _ignore_errors=True)
    verdicts = judge(plan, host_state(host, plan.config), record)
    for judged in verdicts:
        if judged.key in SHOWN and judged.result == "pass":
            logger.info(f"{host.print_prefix}{judged.key}: {judged.seen}")
    yield from conclude(CHECK, verdicts)


def order(plan: Plan) -> Order:
    """The server itself, its overlay, and its front."""
    server = plan.config.server
    front = f"http://{server.front.replace('0.0.0.0', '127.0.0.1').replace('[::]', '[::1]')}" if server.front else None
    return Order(
        url=server.url,
        model=plan.recipe.api.model_name,
        front=front,
        key_file=SERVER_KEY if front else None,
        overlay=SERVER_STATUS if plan.overlay else None,
    )


class AskedServer(Measured):
    """Asks on the host and reads the JSON."""

    record, schema = Record, SCHEMA
    look = f'sudo python3 -I {MEASUREMENTS} server \'{{"url": "http://ADDRESS:PORT"}}\''

    def command(self, order: Order) -> str:
        """One run."""
        return command("server", order, LIMIT_S)
