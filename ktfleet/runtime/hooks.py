"""What is put in place in a process of the server: through sglang's own registry where there is a way, else by a name
that upstream looks up when it needs it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ktfleet.problem import Problem, Refused
from ktfleet.runtime import routing
from ktfleet.runtime.counters import Counters
from ktfleet.runtime.settings import DECODE_TOKENS, Settings
from ktfleet.runtime.status import Reporter

PRIORITY = 30
"""After mxfp4 (10) and kt_ep (20), whose wrapper it gets."""

WRAPPER, KT_WRAPPER = "ktfleet", "kt_ep"

_DO = "start the server as `ktfleet launch` prints it, with the lock that ktfleet ships"


def install(asked: Settings) -> Overlay:
    """Put it in place. Raises Refused, and whatever upstream raises when it is imported."""
    from kt_kernel import experts_base
    from kt_kernel.utils import amx
    from sglang.srt.layers.moe import kt_ep_wrapper, quant_method_registry
    from sglang.srt.model_executor import cuda_graph_runner

    overlay = Overlay(asked, cuda_graph_runner.get_is_capture_mode)
    if asked.clamp is not None:
        if amx.AMXInt4_MOE is None:
            raise Refused((Problem("kt-kernel's AMXInt4_MOE", "no such class on this CPU", "one to clamp", _DO),))
        amx.AMXInt4_MOE = overlay.clamping(amx.AMXInt4_MOE)
    experts_base.BaseMoEWrapper.select_deferred_experts = select_deferred_experts
    kt_ep_wrapper.mask_and_remap_expert_ids = routing.compiled(routing.remap)
    quant_method_registry.register_moe_quant_wrapper(WRAPPER, overlay.wanted, overlay.attach, priority=PRIORITY)
    return overlay


def select_deferred_experts(
    self: Any, expert_ids: torch.Tensor, expert_scores: torch.Tensor, protected_k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """In the place of kt-kernel's method of this name."""
    found: tuple[torch.Tensor, torch.Tensor] = _split(expert_ids, expert_scores, int(protected_k), self.num_experts)
    return found


_split = routing.compiled(routing.split_deferred)


@dataclass(frozen=True)
class Layer:
    """A layer whose kernel is being loaded, and the limit that it has to get."""

    number: int
    limit: float


class Overlay:
    """The overlay of one process. arrived: layer -> the limit that its kernel was made with."""

    def __init__(self, asked: Settings, capturing: Callable[[], bool]) -> None:
        self.asked, self._capturing = asked, capturing
        self.layers: set[int] = set()
        self.arrived: dict[int, float] = {}
        self.whole_passes = 0
        self.slots, self.counts = Counters(2), Counters(asked.experts + 1)
        self._cull = routing.compiled(routing.cull(asked.per_token, asked.top_k, asked.least, asked.share or 0.0))
        self._tally = routing.compiled(routing.tally)
        self._warm: set[tuple[object, ...]] = set()
        self._loading: Layer | None = None
        self._reporter = Reporter(self)

    def wanted(self, layer: Any, server_args: Any) -> Overlay | None:
        """The registry's question whether a layer is ours: any may be whose experts kt-kernel has."""
        return self if server_args.kt_weight_path is not None else None

    def attach(self, layer: Any, method: Any, _: object) -> Any:
        """The registry's factory. The same object is given back: others ask for its class and id. Raises Refused."""
        if getattr(method, "_quant_wrapper_id", None) != KT_WRAPPER:
            return method  # of a draft model, say, whose experts are all on the card
        limit = getattr(layer.moe_runner_config, "swiglu_limit", None) or 0.0
        number = method.kt_config.layer_idx
        found = tuple(self._disagreements(layer, method.kt_config, limit))
        if found:
            raise refused(*found)
        load, apply = method.process_weights_after_loading, method.apply

        def process_weights_after_loading(layer: Any) -> None:
            with self._load(Layer(number, limit)):
                load(layer)
            if self.asked.clamp is not None and method.wrapper is not None and number not in self.arrived:
                raise refused(Problem(f"layer {number}: the clamp", "none in its kernel", f"{limit:g}", _DO))

        def apply_routed(layer: Any, dispatch_output: Any) -> Any:
            return apply(layer, self.routed(number, dispatch_output))

        method.process_weights_after_loading, method.apply = process_weights_after_loading, apply_routed
        self.layers.add(number)
        self._reporter.start()
        return method

    def clamping(self, kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """In the place of kt-kernel's AMXInt4_MOE: the same, made with the limit of the layer that is loaded."""

        def make(config: Any) -> Any:
            loading = self._loading
            if loading is None or config.layer_idx != loading.number:
                seen = "none" if loading is None else f"layer {loading.number}"
                raise refused(Problem("the layer that a kernel is made for", seen, f"layer {config.layer_idx}", _DO))
            config.swiglu_limit = loading.limit
            made = kernel(config)
            self.arrived[loading.number] = float(config.swiglu_limit)
            return made

        return make

    def routed(self, number: int, dispatch_output: Any) -> Any:
        """What a layer gets to see of its tokens' routing."""
        topk = dispatch_output.topk_output
        ids, weights = topk.topk_ids, topk.topk_weights
        if ids.shape[0] == 0:
            return dispatch_output
        if self.asked.culls and (ids.shape[0] <= DECODE_TOKENS or self._capturing()):
            row = self._ready(number, weights, ids)
            weights, ids = self._cull(weights, ids, row)
            dispatch_output = dispatch_output._replace(topk_output=topk._replace(topk_weights=weights, topk_ids=ids))
        else:
            self.whole_passes += number == max(self.layers)
        if self.asked.counts is not None:
            self._tally(ids, self._row(self.counts, number, ids.device))
        if number == max(self.layers):
            self.slots.publish()
            self.counts.publish()
        return dispatch_output

    def _ready(self, number: int, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The layer's row, with everything compiled. The server makes two passes before it captures one."""
        kind = (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), weights.dtype, ids.dtype)
        if kind not in self._warm:
            _not_captured(ids.device)
            routing.warm(self._cull, self.asked.per_token, ids.device, weights.dtype, ids.dtype)
            self._warm.add(kind)
        return self._row(self.slots, number, ids.device)

    @staticmethod
    def _row(counters: Counters, number: int, device: torch.device) -> torch.Tensor:
        if number not in counters.rows:
            _not_captured(device)
            counters.add(number, device)
        return counters.rows[number]

    @contextlib.contextmanager
    def _load(self, layer: Layer) -> Iterator[None]:
        self._loading = layer
        try:
            yield
        finally:
            self._loading = None

    def _disagreements(self, layer: Any, config: Any, limit: float) -> Iterator[Problem]:
        """Between what was asked for and what the server has made of model and flags."""
        asked = self.asked
        pairs: tuple[tuple[str, object, object], ...] = (
            ("kt-kernel's method", (config.method or "").upper(), asked.method),
            ("experts", len(config.gpu_experts_mask), asked.experts),
            ("experts that the router picks", layer.top_k, asked.per_token),
            ("layers", config.num_layers, asked.layers),
        )
        if asked.clamp is not None:
            pairs = (*pairs, ("the model's SwiGLU limit", limit, asked.clamp))
        for what, seen, wanted in pairs:
            if seen != wanted:
                yield Problem(f"layer {config.layer_idx}: {what}", f"{seen}", f"{wanted}", _DO)


def _not_captured(device: torch.device) -> None:
    """Nothing is compiled or allocated within a capture."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        seen, wanted = "one that is captured in a graph", "an eager one before it"
        raise refused(Problem("the overlay's first pass", seen, wanted, _DO))


def refused(*problems: Problem) -> Refused:
    """What ends the start after the import. sglang logs a traceback then: the lines stand before it."""
    for problem in problems:
        print(f"ktfleet overlay: {problem}", file=sys.stderr, flush=True)
    return Refused(problems)
