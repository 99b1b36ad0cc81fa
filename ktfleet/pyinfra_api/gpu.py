"""The GPU's measurement as a pyinfra operation: place the program, run it, judge, fail on a bad verdict."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import distribution
from importlib.resources import files as resources
from pathlib import Path

from pydantic import ValidationError
from pyinfra import host, logger, state
from pyinfra.api import FactBase, FileUploadCommand, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError

from ktfleet import results
from ktfleet.config import Gpu
from ktfleet.judge.gpu import begun, judge
from ktfleet.measure.gpu_record import SCHEMA, Record
from ktfleet.plan import Plan
from ktfleet.plan.places import MEASURE
from ktfleet.pyinfra_api.operations import Commands, conclude

LIMIT_S = 600
"""Of the whole measurement. A card that is breaking down can keep NVML waiting for minutes."""

_DO = f"see what `sudo python3 -I {MEASURE}/gpu.py` prints there"


@operation()
def check_gpu(plan: Plan) -> Commands:
    """Measure the GPU under load, judge, store the verdicts, fail on a bad one. While preparing: nothing."""
    wanted = plan.config.gpu
    if not state.is_executing:
        logger.info(f"{host.print_prefix}the GPU is {'measured' if wanted else 'not looked at'} when this runs")
        return
    record = None
    if wanted is not None:
        results.store(host.name, "gpu", begun())
        yield from _place()
        record = host.get_fact(MeasuredGpu, wanted, _ignore_errors=True)
    yield from conclude("gpu", judge(wanted, record))


def sources() -> dict[str, Path]:
    """Where each file of the measurement comes from, by its place on the host."""
    pynvml = Path(str(distribution("nvidia-ml-py").locate_file("pynvml.py")))
    ours = (Path(str(resources("ktfleet.measure").joinpath(name))) for name in ("gpu.py", "gpu.cu"))
    return {f"{MEASURE}/{path.name}": path for path in (*ours, pynvml)}


def _place() -> Commands:
    """Upload the files that differ, each under a temporary name first."""
    wanted = sources()
    there = host.get_fact(Digests, tuple(wanted)) or {}
    differing = {
        place: path
        for place, path in wanted.items()
        if there.get(place) != hashlib.sha256(path.read_bytes()).hexdigest()
    }
    if differing:
        yield StringCommand(f"mkdir -p {MEASURE}")
        for place, path in differing.items():
            yield FileUploadCommand(str(path), f"{place}.new", remote_temp_filename=host.get_temp_filename(place))
        yield StringCommand(" && ".join(f"mv {place}.new {place}" for place in differing))


class Digests(FactBase[dict[str, str]]):
    """The sha256 of each file that is there, by path."""

    def command(self, paths: tuple[str, ...]) -> str:
        """Missing files are no error."""
        return f"sha256sum {' '.join(paths)} 2>/dev/null || true"

    def process(self, output: list[str]) -> dict[str, str]:
        """Lines of sha256sum(1)."""
        lines = (re.fullmatch(r"([0-9a-f]{64})  (/\S+)", line) for line in output)
        return {line[2]: line[1] for line in lines if line}


class MeasuredGpu(FactBase[Record | None]):
    """Runs the measurement on the host and reads its JSON."""

    def command(self, wanted: Gpu) -> str:
        """With load: an idle card shows neither its PCIe generation nor its memory clock."""
        options = f"--load --arch {wanted.architecture} --toolkit {wanted.toolkit_folder}"
        return f"timeout -k 10 {LIMIT_S} python3 -I {MEASURE}/gpu.py {options}"

    def process(self, output: list[str]) -> Record | None:
        """Find the JSON among whatever a shell profile printed."""
        line = next((line for line in reversed(output) if line.startswith("{")), None)
        if line is None:
            raise FactProcessError(f"the measurement said nothing: seen {output[-1:]}, wanted one line of JSON; {_DO}")
        return parse(line)


def parse(line: str) -> Record:
    """The measurement's JSON as a record. Raises FactProcessError."""
    try:
        record = Record.model_validate(json.loads(line))
    except (ValueError, ValidationError) as error:
        raise FactProcessError(
            f"the measurement's answer cannot be read: seen {line[:80]!r}, wanted its JSON; {_DO}"
        ) from error
    if record.schema_version != SCHEMA:
        raise FactProcessError(
            f"the measurement has another schema: seen {record.schema_version}, wanted {SCHEMA}; {_DO}"
        )
    return record
