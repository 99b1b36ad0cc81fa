"""The upstream checkpoint of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ktfleet.validation import Strict

Bytes = Annotated[int, Field(ge=1, le=10**15)]


class Checkpoint(Strict):
    """A hub's repository at one revision.

    bytes: of its weight files. index_sha256: of its model.safetensors.index.json, which names every tensor; None: not
    known, then the hub's own list of hashes is all that proves it. converter_input: as the upstream converter names the
    format of its experts. copied_bytes: what that converter copies beside the experts that it converts.
    """

    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    bytes: Bytes
    index_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    converter_input: Literal["fp4", "fp8", "bf16", "fp16"]
    copied_bytes: Bytes

    @property
    def name(self) -> str:
        """The repository's own name: the folder on a data disk."""
        return self.repository.rpartition("/")[2]
