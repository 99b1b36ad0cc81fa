"""What is wanted: one workstation's configuration, as inventories and --config files write it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ktfleet.sources import Sha256, Stack, Url, Weights
from ktfleet.validation import FALSE_IS_NONE, Strict, read_toml, validated

HugepagePolicy = Literal["thp", "hugetlb", "off"]
Generation = Annotated[int, Field(ge=5, le=20)]
Revision = Annotated[int, Field(ge=0, le=9)]


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
    """Where the weights lie: a file system of its own, on a disk that survives a reinstall. `mount` is its path.

    uuid, label: of that file system, as `lsblk -f` shows them: it is mounted there from now on, and never formatted.
    Neither: somebody else mounts it.
    """

    mount: Annotated[str, Field(pattern=r"^/[^\n]*$")]
    uuid: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{4,36}$")] | None = None
    label: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,36}$")] | None = None

    @model_validator(mode="after")
    def _one_name_and_a_plain_path(self) -> Self:
        if self.uuid is not None and self.label is not None:
            raise ValueError("uuid or label, not both")
        if self.mounted_by_us and not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", self.mount):
            raise ValueError("a mount without blanks and a slash at its end, like /srv/models")
        return self

    @property
    def mounted_by_us(self) -> bool:
        """Whether ktfleet mounts it."""
        return self.uuid is not None or self.label is not None

    @property
    def device(self) -> str:
        """Where udev has it, if ktfleet mounts it."""
        return f"/dev/disk/by-uuid/{self.uuid}" if self.uuid else f"/dev/disk/by-label/{self.label}"

    @property
    def tag(self) -> str:
        """As fstab names it."""
        return f"UUID={self.uuid}" if self.uuid else f"LABEL={self.label}"


Driver = Annotated[str, Field(pattern=r"^[0-9]{3}(\.[0-9]{1,3}){1,2}$")]


class Gpu(Strict):
    """The graphics card and what drives it. Default: one RTX 5090.

    capability: CUDA's compute capability, (12, 0) being sm_120.
    driver_branch: NVIDIA's, as in its package names. minimum_driver: CUDA 13's runtime, which the serving stack
    brings along, wants at least the default.
    toolkit: the release of CUDA with which the stack compiles on the host.
    repository: where NVIDIA's packages are; a fleet may mirror it, without TLS too: what comes from there is proven by
    its key's digest and the signature. No slash at the end.
    keyring_sha256: of the mirror's cuda-keyring package, where the mirror signs with a key of its own; None: NVIDIA's.
    memory_mib: of the card, as nvidia-smi tells it.
    power_limit_w: in watts; None: the card's own.
    """

    capability: Annotated[tuple[Generation, Revision], Field(strict=False)] = (12, 0)
    driver_branch: Annotated[str, Field(pattern=r"^[0-9]{3}$")] = "580"
    minimum_driver: Driver = "580.65.06"
    toolkit: Annotated[str, Field(pattern=r"^[0-9]{2}\.[0-9]$")] = "12.9"
    repository: Url = "https://developer.download.nvidia.com/compute/cuda/repos"
    keyring_sha256: Sha256 | None = None
    memory_mib: Annotated[int, Field(ge=1024, le=2**20)] = 32_607
    power_limit_w: Annotated[int, Field(ge=100, le=1000)] | None = None

    @model_validator(mode="after")
    def _branch_holds_the_minimum(self) -> Self:
        if self.minimum_driver.partition(".")[0] > self.driver_branch:
            raise ValueError(f"a driver_branch of at least {self.minimum_driver.partition('.')[0]}")
        return self

    @property
    def sm(self) -> str:
        """As compilers and error messages name the capability: "sm_120"."""
        return "sm_{}{}".format(*self.capability)

    @property
    def architecture(self) -> str:
        """What to compile for, less the prefix: "120a". Since sm_90 the "a" adds what only that chip has."""
        return "{}{}".format(*self.capability) + ("a" if self.capability >= (9, 0) else "")

    @property
    def toolkit_folder(self) -> str:
        """Where NVIDIA's packages install the toolkit."""
        return f"/usr/local/cuda-{self.toolkit}"


LOOPBACK = "127.0.0.1"


Word = Annotated[str, Field(pattern=r"^[^\x00]+$")]


class Key(Strict):
    """An API key, on the controller: in a file of its owner alone (mode 0600), or what a command prints.

    It is of 16 to 512 letters, digits and `-._~+/=`, on one line.
    """

    file: Annotated[str, Field(pattern=r"^[^\n]+$")] | None = None
    command: Annotated[tuple[Word, ...], Field(strict=False, min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.command is None):
            raise ValueError("file or command, and not both")
        return self


_NOT_THE_KEY_ITSELF = BeforeValidator(lambda value: {} if isinstance(value, str | bytes) else value)
"""A refusal shows what it has seen: never a key that was written where its place belongs."""


class Server(Strict):
    """Where clients reach the model: an address of the host and a port.

    With a key, which any address beyond the loopback needs, that is a front which asks for it; the server itself then
    listens on the loopback at the next port, because sglang logs and shows its own key.
    """

    host: str = LOOPBACK
    port: Annotated[int, Field(ge=1024, le=65534)] = 30000
    key: Annotated[Key | None, _NOT_THE_KEY_ITSELF] = None

    @model_validator(mode="after")
    def _public_with_a_key_only(self) -> Self:
        try:
            local = ip_address(self.host).is_loopback
        except ValueError:
            raise ValueError("host as an IP address of this host, like 127.0.0.1 or 0.0.0.0") from None
        if not local and self.key is None:
            raise ValueError(f"a key together with a host beyond {LOOPBACK}")
        return self

    @property
    def listens(self) -> str:
        """The address that sglang itself is bound to."""
        return LOOPBACK if self.key else self.host

    @property
    def own_port(self) -> int:
        """The port that sglang itself is bound to."""
        return self.port + 1 if self.key else self.port

    @property
    def url(self) -> str:
        """Where the server itself answers, on its host."""
        return f"http://{_bracketed(self.listens)}:{self.own_port}"

    @property
    def front(self) -> str | None:
        """Where clients are asked for the key, as "ADDRESS:PORT"; None: nowhere."""
        return f"{_bracketed(self.host)}:{self.port}" if self.key else None


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class Reference(Strict):
    """An OpenAI-compatible server of the same model, unquantised: url up to and without /v1, its name for the model.

    The hosts ask it without a key.
    """

    url: Url
    model: Annotated[str, Field(pattern=r"^[^\n]+$")] | None = None


class Workstation(Strict):
    """One host's wanted configuration.

    recipe: the name of a packaged recipe, or the path of a TOML file.
    override: keys of the recipe that are different here, as in its file.
    accept: guard rail -> why it is crossed all the same; beside the recipe's own.
    server: where clients reach the model, and the key that they need.
    cpuinfer: worker threads over all pools; default: the recipe's, or as many as the host allows.
    wake_latency_us: cap on the CPUs' wake-up latency while the server runs, in microseconds; None: no cap.
    data: the disk of the weights; None: none is asked for.
    weights: where they come from; None (in TOML: false): none are got.
    stack: the server's environment; None (in TOML: false): none is installed.
    gpu: the graphics card; None (in TOML: false): the host has none to serve with, nothing of it is installed or
    checked.
    kernel_command_line: the opt-in rows of the settings table to put on the kernel command line.
    measure: when deploy.py takes its measurements again: when something that they depend on has changed, always, or
    never: then it ends without a figure, and the checks have to be run by themselves.
    interrupt: stop a running server for the measurements that want the machine for themselves, and start it again.
    reference: who answers the canary's questions, too, for comparison; None: nobody.
    """

    recipe: str = "dsv4-flash-amxint4"
    override: dict[str, Any] = Field(default_factory=dict)
    accept: dict[str, Annotated[str, Field(pattern=r"^[^\n]*\S[^\n]*$")]] = Field(default_factory=dict)
    server: Server = Server()
    hardware: Hardware = Hardware()
    hugepages: Hugepages = Hugepages()
    cpuinfer: Annotated[int, Field(ge=1)] | None = None
    wake_latency_us: Annotated[int, Field(ge=0, le=10_000)] | None = 20
    data: Data | None = None
    weights: Annotated[Weights | None, FALSE_IS_NONE] = None
    stack: Annotated[Stack | None, FALSE_IS_NONE] = Stack()
    gpu: Annotated[Gpu | None, FALSE_IS_NONE] = Gpu()
    kernel_command_line: Annotated[tuple[str, ...], Field(strict=False)] = ()
    measure: Literal["changed", "always", "never"] = "changed"
    interrupt: bool = False
    reference: Reference | None = None


def parse(data: Mapping[str, Any], origin: str) -> Workstation:
    """Validate `data`. `origin` (a host's or a file's name) begins every line of the refusal.

    Raises Refused with one problem for each bad key.
    """
    return validated(Workstation, data, origin)


def load(path: Path) -> Workstation:
    """Read a configuration from a TOML file. Raises Refused."""
    return parse(read_toml(path), str(path))
