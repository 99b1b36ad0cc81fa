"""What the hooks really saw, on its way from the card to the host without that anybody waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


class Counters:
    """One row of numbers a layer. The card adds to its own rows; the last layer of each pass has them copied into
    pinned memory, which a thread reads without a call to CUDA: such a call would break a capture in another thread.

    columns: numbers in a row.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: dict[int, Tensor] = {}
        self._gathered: Tensor | None = None
        self._host: Tensor | None = None

    def add(self, layer: int, device: torch.device) -> Tensor:
        """A new layer's row. Not while a graph is captured: what is allocated then belongs to the graph. And in the
        mode in which it is added to: inference_mode and no_grad make different tensors.
        """
        self.rows[layer] = torch.zeros(self.columns, dtype=torch.int64, device=device)
        size = (len(self.rows), self.columns)
        self._gathered = torch.zeros(size, dtype=torch.int64, device=device)
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=device.type == "cuda")
        return self.rows[layer]

    def publish(self) -> None:
        """Queue the copy to the host, behind what the card does now."""
        if self._gathered is None or self._host is None:
            return
        torch.stack(list(self.rows.values()), out=self._gathered)
        self._host.copy_(self._gathered, non_blocking=True)

    def read(self) -> dict[int, list[int]]:
        """Layer -> its numbers, as they were published last."""
        host = self._host
        # Another thread may be adding a row, at the end.
        return {} if host is None else dict(zip(list(self.rows), host.tolist(), strict=False))
