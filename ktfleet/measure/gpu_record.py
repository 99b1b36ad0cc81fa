"""What `gpu.py` prints: a host's GPU, its driver and its CUDA toolkit, as frozen types.

A field that could not be had is None, and `unreadable` says why. Sizes are bytes, clocks MHz, power mW.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1
"""Version of the JSON. A record with another version is not read: its meaning may differ."""

NOT_SUPPORTED = "Not Supported"
"""NVML's reason for a getter that this card does not have. It is an answer, not a gap."""


class Frozen(BaseModel):
    """Immutable; keys of a newer measurement that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Pci(Frozen):
    """One display device of NVIDIA's, by sysfs. `driver` is the kernel driver that it is bound to."""

    address: str
    device: str | None = None
    driver: str | None = None


class Module(Frozen):
    """The NVIDIA kernel module on disk for one installed kernel. `signer` is whose key it is signed with."""

    kernel: str
    found: bool
    version: str | None = None
    license: str | None = None
    signer: str | None = None


class Driver(Frozen):
    """Every part of the driver that has a version.

    loaded: the kernel module that runs; flavour "open" or "proprietary". module, next_module: on disk, for the running
    and for the newest installed kernel. library: libnvidia-ml's, by its file name. nvml, nvml_library, cuda: what NVML
    says when it starts; nvml_error: the name of its error when it does not. module_load: what modprobe said, when a
    card had no driver.
    """

    pci: tuple[Pci, ...] | None = None
    module_load: str | None = None
    kernel: str | None = None
    newest_kernel: str | None = None
    loaded: str | None = None
    flavour: str | None = None
    library: str | None = None
    secure_boot: bool | None = None
    module: Module | None = None
    next_module: Module | None = None
    nvml: str | None = None
    nvml_library: str | None = None
    nvml_error: str | None = None
    cuda: int | None = None


class Sample(Frozen):
    """What moves: of an idle card one look, of a busy one the largest of each and all `event_reasons` (a bit mask)."""

    link_width: int | None = None
    link_generation: int | None = None
    memory_mhz: int | None = None
    sm_mhz: int | None = None
    power_mw: int | None = None
    celsius: int | None = None
    event_reasons: int | None = None


class Process(Frozen):
    """A process that holds memory of the card. `unit` is its systemd service or scope."""

    pid: int
    name: str | None = None
    unit: str | None = None
    memory_bytes: int | None = None


class Result(Frozen):
    """What gpu.cu prints: wrong numbers, the architecture of its machine code (1200), the fastest copy to the card."""

    wrong: int
    launches: int = 0
    seconds: float = 0
    architecture: int | None = None
    to_card_gb_s: float | None = None


class Run(Frozen):
    """One run of gpu.cu on one card. `text` is what it said when it printed no result."""

    exit: int
    result: Result | None = None
    text: str | None = None


class Card(Frozen):
    """One card. `bus` is its PCI address as sysfs writes it.

    max_link_generation: what card and slot can do together; card_link_generation: the card alone.
    `busy` and `run` are None without the load.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    bus: str | None = None
    capability: Annotated[tuple[int, int], Field(strict=False)] | None = None
    memory_bytes: int | None = None
    bar1_bytes: int | None = None
    max_link_width: int | None = None
    max_link_generation: int | None = None
    card_link_generation: int | None = None
    persistence: bool | None = None
    power_limit_mw: int | None = None
    power_default_mw: int | None = None
    max_memory_mhz: int | None = None
    ecc: bool | None = None
    numa_node: int | None = None
    processes: tuple[Process, ...] | None = None
    idle: Sample = Sample()
    busy: Sample | None = None
    run: Run | None = None


class Xid(Frozen):
    """One code of one card in the kernel log: how often since the boot, and the last line."""

    bus: str
    code: int
    count: int = 1
    line: str = ""


class KernelLog(Frozen):
    """What the kernel said about the card. `whole`: the log reaches back to the boot."""

    source: str
    whole: bool = False
    xids: tuple[Xid, ...] = ()
    lines: tuple[str, ...] = ()


class Nvcc(Frozen):
    """One compiler. `text` is what it said when it did not answer."""

    path: str
    release: str | None = None
    archs: tuple[str, ...] | None = None
    text: str | None = None


class Toolkit(Frozen):
    """The wanted toolkit's nvcc, and what root's login shell has: every nvcc on its PATH, its CUDA_HOME ("": unset)."""

    folder: str
    nvcc: Nvcc | None = None
    on_path: tuple[Nvcc, ...] | None = None
    cuda_home: str | None = None
    cuda_home_from: tuple[str, ...] = ()


class Build(Frozen):
    """The compilation of gpu.cu. `text` is what the compiler said."""

    arch: str
    command: str = ""
    built: bool
    text: str = ""


class Record(Frozen):
    """The whole measurement. `loaded`: whether it was asked to put load on the cards."""

    schema_version: int = Field(alias="schema")
    driver: Driver = Driver()
    cards: tuple[Card, ...] | None = None
    kernel_log: KernelLog | None = None
    toolkit: Toolkit | None = None
    kernel_build: Build | None = None
    loaded: bool = False
    unreadable: dict[str, str] = Field(default_factory=dict)

    def why(self, *keys: str) -> str:
        """The first known reason among the keys of `unreadable`."""
        return next((self.unreadable[key] for key in keys if key in self.unreadable), "it was not told")
