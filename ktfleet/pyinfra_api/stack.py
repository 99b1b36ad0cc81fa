"""The server's environment as pyinfra operations: what its installation needs, its proof, and the switch to it."""

from __future__ import annotations

from collections.abc import Generator
from importlib.resources import files as resources
from pathlib import Path
from shlex import join

import uv
from pyinfra import host, logger, state
from pyinfra.api import StringCommand, operation
from pyinfra.api.command import PyinfraCommand

from ktfleet import results
from ktfleet.config import Workstation
from ktfleet.judge.stack import begun, judge
from ktfleet.measure.stack import OVERLAY, OVERLAY_FOLDER
from ktfleet.measure.stack_record import SCHEMA, Record
from ktfleet.plan import Plan
from ktfleet.plan.account import ACCOUNT
from ktfleet.plan.overlay import Overlay
from ktfleet.plan.places import MEASURE, STACK, STACK_LOCK, STACK_PYTHON, STACK_UV
from ktfleet.plan.stack import changes
from ktfleet.pyinfra_api.facts import host_state
from ktfleet.pyinfra_api.measurement import Measured
from ktfleet.pyinfra_api.operations import Commands, begin, conclude
from ktfleet.pyinfra_api.upload import place
from ktfleet.stack.install import LOCK

CHECK = "stack"
LIMIT_S = 4500
"""Of the whole proof, with what it compiles for a card the first time. Each step has a shorter limit of its own."""

PROOF = f"{MEASURE}/stack.py"


@operation()
def provide(plan: Plan) -> Commands:
    """Place uv and the lock, while there is something to install with them."""
    seen = host_state(host, plan.config)
    if plan.stack is None or seen is None or changes.nothing_to_build(plan, seen):
        return
    yield from begin(seen)
    yield from place({STACK_UV: Path(uv.find_uv_bin())}, "0755")
    yield from place({STACK_LOCK: plan.stack.lock})


@operation()
def switch(plan: Plan) -> Commands:
    """Prove the wanted environment where it was built; only then is it what the server starts from."""
    seen = host_state(host, plan.config)
    if plan.stack is None or seen is None or changes.nothing_to_switch(plan, seen):
        return
    if state.is_executing:
        proven = yield from _prove(plan, plan.stack.job.folder)
        if not proven:
            return
    for command in changes.switch(plan, seen):
        yield from begin(seen)
        yield StringCommand(command)


@operation()
def check_stack(plan: Plan) -> Commands:
    """Prove the environment that the server starts from, once more."""
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the server's environment is {'proven' if plan.stack else 'not looked at'}")
        return
    yield from _prove(plan, STACK)


def _prove(plan: Plan, folder: str) -> Generator[PyinfraCommand, None, bool]:
    """Run the proof as the service's user, judge, store the verdicts, fail the host on a bad one. True: none."""
    record = None
    if plan.stack is not None:
        results.store(host.name, CHECK, begun())
        yield from place({PROOF: Path(str(resources("ktfleet.measure").joinpath("stack.py")))})
        record = host.get_fact(ProvenStack, plan.config, folder, plan.overlay, _ignore_errors=True)
    verdicts = judge(plan.config, record, overlay=plan.overlay is not None)
    yield from conclude(CHECK, verdicts)
    return all(verdict.good for verdict in verdicts)


class ProvenStack(Measured):
    """Runs the proof on the host and reads its JSON."""

    record, schema, look = Record, SCHEMA, f"sudo -u {ACCOUNT} {STACK_PYTHON} -I {PROOF} --lock {STACK}/{LOCK}"

    def command(self, config: Workstation, folder: str, overlay: Overlay | None) -> str:
        """As the service's user, whose home gets what is unpacked and compiled; from a folder that it may read."""
        options = ("--lock", f"{folder}/{LOCK}", *(("--gpu",) if config.gpu else ()))
        variables = (
            *((f"CUDA_HOME={config.gpu.toolkit_folder}",) if config.gpu else ()),
            *((f"{OVERLAY}={overlay.asked}", f"{OVERLAY_FOLDER}={overlay.folder}") if overlay else ()),
        )
        program = ("env", *variables, f"{folder}/bin/python", "-I", PROOF, *options)
        return f"cd / && timeout -k 10 {LIMIT_S} sudo -H -u {ACCOUNT} {join(program)}"
