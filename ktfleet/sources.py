"""Where weights and packages come from, as inventories and --config files write it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ktfleet.validation import FALSE_IS_NONE, Strict

Url = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~-]+)*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
AbsolutePath = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._+@-]+)+$")]
UrlOrPath = Annotated[
    str, Field(pattern=r"^(https?://[A-Za-z0-9.-]+(:[0-9]+)?|/[A-Za-z0-9._~+@-]+)(/[A-Za-z0-9._~+@-]+)*$")
]
RsyncPlace = Annotated[
    str,
    Field(
        pattern=r"^(rsync://[A-Za-z0-9.-]+(:[0-9]+)?|([A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:)(/[A-Za-z0-9._-]+)+$"
    ),
]
GitUrl = Annotated[str, Field(pattern=r"^((https?|ssh|git)://[A-Za-z0-9@.-]+(:[0-9]+)?|file://)(/[A-Za-z0-9._~-]+)+$")]


class HubSource(Strict):
    """A hub that speaks Hugging Face's protocol; what is fetched is in the recipe's [checkpoint].

    endpoint: its address, or a mirror's. No slash at the end.
    token_file: on the host, root's and with mode 0600; only systemd reads it and hands it to the download. None: no
    token.
    """

    kind: Literal["hub"] = "hub"
    endpoint: Url = "https://huggingface.co"
    token_file: AbsolutePath | None = None

    @model_validator(mode="after")
    def _no_token_in_the_clear(self) -> Self:
        if self.token_file is not None and not self.endpoint.startswith("https://"):
            raise ValueError("token_file together with an endpoint that begins with https:// only")
        return self


class RsyncSource(Strict):
    """Another workstation or a file server: host:/folder (over ssh, as the user ktfleet) or rsync://host/module/folder.

    checkpoint: the folder of the hub's files. shards: that of converted weights, made for as many pools as this host
    has; None: they are converted here.
    """

    kind: Literal["rsync"]
    checkpoint: RsyncPlace
    shards: RsyncPlace | None = None


class FolderSource(Strict):
    """Folders that the host can read, say on a disk that was brought along. The same keys as for rsync."""

    kind: Literal["folder"]
    checkpoint: AbsolutePath
    shards: AbsolutePath | None = None


class Converter(Strict):
    """The upstream converter, one file of a git repository, which a fleet may mirror.

    The default is ktransformers' newest commit on 2026-08-21; the file has been the same since c465557c, which added
    it, and only the repository has it, no wheel.
    """

    repository: GitUrl = "https://github.com/kvcache-ai/ktransformers.git"
    commit: Commit = "95009ea6856c0799e517e93cb12be5e8494bc7ce"
    path: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$")] = (
        "kt-kernel/scripts/convert_cpu_weights_ds4.py"
    )
    sha256: Sha256 = "7d65b2619c68f6cd0b87f06e273ac10a0dcb615d5cbc6998ad835cf63eb2f1b3"


class Weights(Strict):
    """The recipe's weights, on the data disk. converter: None (in TOML: false) converts nothing."""

    source: Annotated[HubSource | RsyncSource | FolderSource, Field(discriminator="kind")] = HubSource()
    converter: Annotated[Converter | None, FALSE_IS_NONE] = Converter()


class Stack(Strict):
    """The server's environment: Python packages from a lock with hashes, below /opt/ktfleet.

    lock: a hashed requirements file on the controller, without any index address; None: ktfleet's own, for CPython 3.11
    or 3.12.
    index: of packages (a "simple" one), without a slash at the end; None: uv's own, or none if there are wheels.
    wheels: a folder on the host, or the address of a page, with wheels for hosts without an index.
    python_mirror: where uv gets CPython 3.12 for a host that has neither 3.11 nor 3.12; None: uv's own.
    bytes: what one environment takes, at most; twice as much must be free at first.
    cpu_variant: of kt-kernel's extension, which the import proof wants loaded; the default is a Skylake's.
    """

    lock: str | None = None
    index: Url | None = None
    wheels: UrlOrPath | None = None
    python_mirror: Url | None = None
    bytes: Annotated[int, Field(ge=1)] = 10_000_000_000
    cpu_variant: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] = "avx512_base"
