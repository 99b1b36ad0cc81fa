"""What the benches of one expert layer share: their options, the machine, the order of the recipe's real shape."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ktfleet import recipes
from ktfleet.host import probe
from ktfleet.host.state import HostState
from ktfleet.measure.trial import measure
from ktfleet.measure.trial_record import Record
from ktfleet.plan import trial
from ktfleet.plan.cores import physical_cores
from ktfleet.plan.request import request

RECIPES = {"AMXINT4": "dsv4-flash-amxint4", "MXFP4": "dsv4-flash-mxfp4"}
WIDE = {"avx512f", "avx512bw"}


def machine() -> HostState:
    """This one. Ends the process where a core is missing beside the workers."""
    here = HostState.model_validate(probe.collect(root="/", **asdict(request())))
    if not trial.possible(here):
        sys.exit("this machine cannot show it: seen fewer than two cores of each node, wanted more; use another one")
    return here


def options(description: str | None, here: HostState) -> argparse.ArgumentParser:
    """Which kernel, and how long."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", default="", help="where kt_kernel/ lies; default: this Python's packages")
    parser.add_argument("--variant", default="", help="of the extension; default: what kt-kernel takes on this CPU")
    parser.add_argument("--method", choices=RECIPES, default="AMXINT4" if _wide(here) else "MXFP4")
    parser.add_argument("--experts", type=int, default=trial.EXPERTS, help="far more than the caches hold")
    parser.add_argument("--rounds", type=int, default=12)
    return parser


def measured(here: HostState, asked: argparse.Namespace, arms: Sequence[dict[str, Any]]) -> Record:
    """Measure the arms in turn, print what was seen, for people and as JSON. Ends the process when it was nothing."""
    order = trial.order(recipes.load(RECIPES[asked.method]), arms, asked.rounds)
    found = measure(replace(order, experts=asked.experts, folder=asked.folder, variant=asked.variant))
    record = Record.model_validate(found)
    cores = "+".join(str(len(each)) for each in physical_cores(here).values())
    print(f"{here.cpu_model}, {len(here.cpus)} CPUs, {cores} physical cores, Linux {platform.release()}")
    print(f"AVX-512 F and BW: {'yes' if _wide(here) else 'no, so this is AVX2: no figure of a Xeon'}")
    print(record)
    print(json.dumps(found))
    if record.why:
        sys.exit(1)
    return record


def _wide(here: HostState) -> bool:
    return set(here.cpu_flags or ()) >= WIDE
