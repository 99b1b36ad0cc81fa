"""What is wanted: one workstation's configuration, as inventories and --config files write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ktfleet.validation import Strict, read_toml, validated

HugepagePolicy = Literal["thp", "hugetlb", "off"]


class Hardware(Strict):
    """The machine that was bought: what is seen must match. Default: 2x Xeon Gold 6138."""

    sockets: Annotated[int, Field(ge=1)] = 2
    cores_per_socket: Annotated[int, Field(ge=1)] = 20


class Hugepages(Strict):
    """How the expert weights get huge pages.

    `thp`: transparent huge pages. `hugetlb`: a reserved pool on each node, for a server that is started
    with glibc's hugetlb tunable. `off`: 4 KiB pages. `per_node` is the number of 2 MiB pages in each
    node's pool (hugetlb only; default: enough for the recipe's shard).
    """

    policy: HugepagePolicy = "thp"
    per_node: Annotated[int, Field(ge=1, le=2**31)] | None = None

    @model_validator(mode="after")
    def _pool_needs_its_policy(self) -> Self:
        if self.per_node is not None and self.policy != "hugetlb":
            raise ValueError("per_node together with the policy hugetlb only")
        return self


class Data(Strict):
    """Where the weights lie: a file system of its own, on a disk that survives a reinstall. `mount` is its path."""

    mount: Annotated[str, Field(pattern=r"^/[^\n]*$")]


class Workstation(Strict):
    """One host's wanted configuration.

    recipe: the name of a packaged recipe, or the path of a TOML file.
    cpuinfer: worker threads over all pools; default: as many as the host allows.
    wake_latency_us: cap on the CPUs' wake-up latency while the server runs, in microseconds; None: no cap.
    data: the folder of the weights; None: none is asked for.
    kernel_command_line: the opt-in rows of the settings table to put on the kernel command line.
    """

    recipe: str = "dsv4-flash-amxint4"
    hardware: Hardware = Hardware()
    hugepages: Hugepages = Hugepages()
    cpuinfer: Annotated[int, Field(ge=1)] | None = None
    wake_latency_us: Annotated[int, Field(ge=0, le=10_000)] | None = 20
    data: Data | None = None
    kernel_command_line: Annotated[tuple[str, ...], Field(strict=False)] = ()


def parse(data: Mapping[str, Any], origin: str) -> Workstation:
    """Validate `data`. `origin` (a host's or a file's name) begins every line of the refusal.

    Raises Refused with one problem for each bad key.
    """
    return validated(Workstation, data, origin)


def load(path: Path) -> Workstation:
    """Read a configuration from a TOML file. Raises Refused."""
    return parse(read_toml(path), str(path))
