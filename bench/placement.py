"""What the placement of threads is worth, on this machine: python -m bench.placement [--variant avx512_base] ...

One expert layer of the real shape on kt-kernel's own extension, under ktfleet's plan for this machine and three
arrangements that lose, in one process, the rounds of all of them interleaved. Prints GB/s of weights and how many times
slower each is than the plan, with 95 % intervals. Needs the kt-kernel wheel for this Python, in FOLDER or installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict, replace

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


def main() -> None:
    """Measure and print."""
    here = HostState.model_validate(probe.collect(root="/", **asdict(request())))
    wide = set(here.cpu_flags or ()) >= WIDE
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="", help="where kt_kernel/ lies; default: this Python's packages")
    parser.add_argument("--variant", default="", help="of the extension; default: what kt-kernel takes on this CPU")
    parser.add_argument("--method", choices=RECIPES, default="AMXINT4" if wide else "MXFP4")
    parser.add_argument("--experts", type=int, default=trial.EXPERTS, help="far more than the caches hold")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--ab", action="store_true", help="where the other threads run, instead of what loses")
    asked = parser.parse_args()
    if not trial.possible(here):
        sys.exit("this machine cannot show it: seen fewer than two cores of each node, wanted more; use another one")
    arms = trial.others(here) if asked.ab else trial.losing(here)
    order = trial.order(recipes.load(RECIPES[asked.method]), arms, asked.rounds)
    order = replace(order, experts=asked.experts, folder=asked.folder, variant=asked.variant)
    record = measure(order)
    cores = "+".join(str(len(each)) for each in physical_cores(here).values())
    print(f"{here.cpu_model}, {len(here.cpus)} CPUs, {cores} physical cores, Linux {platform.release()}")
    print(f"AVX-512 F and BW: {'yes' if wide else 'no, so this is AVX2: no figure of a Xeon'}")
    print(Record.model_validate(record))
    print(json.dumps(record))
    sys.exit(1 if record["why"] else 0)


if __name__ == "__main__":
    main()
