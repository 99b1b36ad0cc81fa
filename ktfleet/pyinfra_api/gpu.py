"""The GPU's measurement as a pyinfra operation: place the program, run it, judge, fail on a bad verdict."""

from __future__ import annotations

from importlib.metadata import distribution
from importlib.resources import files as resources
from pathlib import Path

from pyinfra import host, logger, state
from pyinfra.api import operation

from ktfleet import results
from ktfleet.config import Gpu
from ktfleet.judge.gpu import begun, judge
from ktfleet.measure.gpu_record import SCHEMA, Record
from ktfleet.plan import Plan, measuring
from ktfleet.plan.circumstances import CARD
from ktfleet.plan.places import MEASURE
from ktfleet.pyinfra_api import kept
from ktfleet.pyinfra_api.measurement import Measured
from ktfleet.pyinfra_api.operations import Commands, conclude
from ktfleet.pyinfra_api.upload import place

LIMIT_S = 600
"""Of the whole measurement. A card that is breaking down can keep NVML waiting for minutes."""


@operation()
def check_gpu(plan: Plan, again: bool) -> Commands:
    """Measure the GPU under load, judge, store the verdicts, fail on a bad one. While preparing: nothing.

    again: although an earlier measurement still holds.
    """
    wanted = plan.config.gpu
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the GPU is {'measured' if wanted else 'not looked at'} when this runs")
        return
    if not again and measuring.skipped(plan):
        return
    record, holds_for = None, None
    if wanted is not None:
        holds_for = kept.circumstances_of(plan, CARD)
        if not again and kept.holds("gpu", plan, holds_for):
            return
        results.store(host.name, "gpu", begun())
        yield from place(sources())
        record = host.get_fact(MeasuredGpu, wanted, _ignore_errors=True)
    yield from conclude("gpu", judge(wanted, record), holds_for)


def sources() -> dict[str, Path]:
    """Where each file of the measurement comes from, by its place on the host."""
    pynvml = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py")))
    ours = (Path(str(resources("ktfleet.measure").joinpath(name))) for name in ("gpu.py", "gpu.cu"))
    return {f"{MEASURE}/{path.name}": path for path in (*ours, pynvml)}


class MeasuredGpu(Measured):
    """Runs the measurement on the host and reads its JSON."""

    record, schema, look = Record, SCHEMA, f"sudo python3 -I {MEASURE}/gpu.py"

    def command(self, wanted: Gpu) -> str:
        """With load: an idle card shows neither its PCIe generation nor its memory clock."""
        options = f"--load --arch {wanted.architecture} --toolkit {wanted.toolkit_folder}"
        return f"timeout -k 10 {LIMIT_S} python3 -I {MEASURE}/gpu.py {options}"
