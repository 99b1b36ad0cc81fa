"""Two layers of experts, served as far as a machine without a card can: sglang's own registry and KTEPWrapperMethod,
kt-kernel's own wrapper, loader and kernel, and the overlay between them. `PYTHON served.py MODE FOLDER`, one JSON.

MODE mxfp4: kt-kernel's MXFP4 classes, whatever the CPU has. MODE int4: AMXMoEWrapper, the class of AMXINT4, for which
the server drops the clamp; the kernel that it makes is MXFP4's, from the same configuration: AMXINT4's own needs
AVX-512, and has its test in ktfleet/runtime/selftest_kernels.py.

Not real: CUDA's streams and pinned memory (nothing is overlapped), the driver (a library of the test's answers "no
device"), the layer (its numbers alone), and what the card would compute.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
LAYERS, EXPERTS, WIDTH, TOP_K, HIDDEN, INTERMEDIATE, GROUP, LIMIT = 2, 8, 6, 4, 512, 256, 32, 10.0
ASKED = {"method": MODE.upper() if MODE == "mxfp4" else "AMXINT4", "layers": LAYERS, "experts": EXPERTS,
         "per_token": WIDTH, "top_k": TOP_K, "status": str(FOLDER / "overlay.json"),
         "counts": str(FOLDER / "counts.pt"), **({"clamp": LIMIT} if MODE == "int4" else {})}  # fmt: skip
os.environ.update(KT_FORCE_SYNC_SUBMIT="1", SGLANG_KT_HYBRID_NO_CPU_STREAM="1")

import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.cuda.get_device_capability = lambda device=None: (12, 0)
torch.cuda.synchronize = lambda device=None: None
torch.cuda.current_stream = lambda device=None: SimpleNamespace(cuda_stream=0, wait_event=lambda event: None)
torch.cuda.Stream = torch.cuda.Event = type("Nothing", (), {"__init__": lambda *_, **__: None,
                                                            "record": lambda self, stream: None})  # fmt: skip
torch.Tensor.record_stream = lambda self, stream: None
for name in ("zeros", "empty", "full"):
    made = getattr(torch, name)
    setattr(torch, name, lambda *args, made=made, **kwargs: made(*args, **{**kwargs, "pin_memory": False}))

from ktfleet.runtime import selftest_kernels as kernels  # noqa: E402


def checkpoint() -> list[list[np.ndarray]]:
    """Write random MXFP4 experts; what they stand for, by layer: gate, up, down."""
    from safetensors.torch import save_file

    random, tensors, means = np.random.default_rng(3), {}, []
    for layer in range(LAYERS):
        means.append([])
        for short, long, shape in (("w1", "gate", (INTERMEDIATE, HIDDEN)), ("w3", "up", (INTERMEDIATE, HIDDEN)),
                                   ("w2", "down", (HIDDEN, INTERMEDIATE))):  # fmt: skip
            codes = random.integers(0, 16, (EXPERTS, *shape)).astype(np.uint8)
            packed = torch.from_numpy(codes[..., 0::2] | codes[..., 1::2] << 4)
            scale = torch.full((shape[0], shape[1] // GROUP), 127 - 4, dtype=torch.uint8)
            values = np.where(codes & 8, -kernels.E2M1[codes & 7], kernels.E2M1[codes & 7])
            means[-1].append((values * 2.0**-4).astype(np.float32))
            for expert in range(EXPERTS):
                if MODE == "mxfp4":
                    key = f"layers.{layer}.ffn.experts.{expert}.{short}"
                    tensors |= {f"{key}.weight": packed[expert].clone(), f"{key}.scale": scale.clone()}
                else:
                    key = f"blk.{layer}.ffn_{long}_exps.{expert}.numa.0"
                    codes16 = (scale.to(torch.int32) << 7).to(torch.int16)
                    tensors |= {f"{key}.weight": packed[expert].clone(), f"{key}.scale": codes16}
    save_file(tensors, FOLDER / "model.safetensors")
    return means


def stand_in(amx: Any) -> None:
    """MXFP4's kernel under AMXINT4's name: it takes the same configuration, and honours its limit."""

    def make(config: Any) -> Any:
        config.quant_config.bits, config.quant_config.group_size = 4, GROUP
        config.quant_config.zero_point = False
        config.load = False
        return amx._select_mxfp4_backend()(config)

    amx.AMXInt4_MOE, amx._HAS_AMXINT4_SUPPORT = make, True


class OnCard(torch.nn.Module):
    """The quantisation method of the experts on the card: it records what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[Any] = []

    def create_weights(self, layer: Any, **_: Any) -> None:
        layer.register_parameter("w13_weight", torch.nn.Parameter(torch.zeros(1)))

    def create_moe_runner(self, layer: Any, config: Any) -> None:
        pass

    def apply(self, layer: Any, dispatch_output: Any) -> Any:
        self.ids.append(dispatch_output.topk_output.topk_ids.tolist())
        return SimpleNamespace(hidden_states=torch.zeros_like(dispatch_output.hidden_states))


class Model:
    """The layers, made and loaded as the server makes and loads them."""

    def __init__(self, deferred: int = 0, on_card: tuple[int, ...] = (), limit: float | None = LIMIT) -> None:
        from kt_kernel.experts_base import BaseMoEWrapper
        from sglang.srt.layers.moe import kt_ep_wrapper, quant_method_registry
        from sglang.srt.layers.moe.moe_runner.base import MoeRunnerConfig

        mask = torch.zeros(EXPERTS, dtype=torch.bool)
        mask[list(on_card)] = True
        BaseMoEWrapper.clear_buffer_cache()
        kt_ep_wrapper.get_tensor_model_parallel_rank = lambda: 0
        args = SimpleNamespace(kt_weight_path=str(FOLDER), kt_method=ASKED["method"])
        self.layers = []
        for number in range(LAYERS):
            config = kt_ep_wrapper.KTConfig(
                layer_idx=number, gpu_experts_mask=mask, cpuinfer_threads=1, threadpool_count=1,
                weight_path=str(FOLDER), chunked_prefill_size=64, max_deferred_experts_per_token=deferred,
                method=ASKED["method"], num_layers=LAYERS,
            )  # fmt: skip
            kt_ep_wrapper.create_kt_config_from_server_args = lambda args, layer, config=config: config
            layer = torch.nn.Module()
            layer.layer_id, layer.top_k, layer.num_experts, layer.moe_tp_size = number, WIDTH, EXPERTS, 1
            layer.intermediate_size_per_partition = INTERMEDIATE
            layer.moe_runner_config = MoeRunnerConfig(swiglu_limit=limit)
            method = quant_method_registry.maybe_wrap_moe_quant_method(layer, OnCard(), args)
            assert type(method) is kt_ep_wrapper.KTEPWrapperMethod
            method.create_weights(layer=layer, num_experts=EXPERTS, hidden_size=HIDDEN, params_dtype=torch.bfloat16,
                                  intermediate_size_per_partition=INTERMEDIATE)  # fmt: skip
            method.create_moe_runner(layer, layer.moe_runner_config)
            method.process_weights_after_loading(layer)
            self.layers.append((layer, method))

    def forward(self, number: int, x: torch.Tensor, ids: Any, mix: Any) -> np.ndarray:
        from sglang.srt.layers.moe.token_dispatcher.standard import StandardDispatchOutput
        from sglang.srt.layers.moe.topk import StandardTopKOutput

        routing = StandardTopKOutput(torch.tensor(mix), torch.tensor(ids, dtype=torch.int32), torch.zeros(1))
        layer, method = self.layers[number]
        out = method.apply(layer, StandardDispatchOutput(x, None, routing)).hidden_states
        return out.float().numpy().copy()


class Reference:
    """The kernels' test's own reference, on this checkpoint."""

    def __init__(self, weights: list[np.ndarray]) -> None:
        self.weights = weights

    reference = kernels.Layer.reference


def kept(ids: np.ndarray, mix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The experts of most weight, the others -1, in plain numpy."""
    left, shares = np.full_like(ids, -1), np.zeros_like(mix)
    for token in range(len(ids)):
        best = sorted(range(WIDTH), key=lambda slot: -mix[token, slot])[:TOP_K]
        left[token, best] = ids[token, best]
        shares[token, best] = mix[token, best] * mix[token].sum() / mix[token, best].sum()
    return left, shares


def run(means: list[list[np.ndarray]]) -> dict[str, Any]:
    references = [Reference(each) for each in means]
    found: dict[str, Any] = {}
    model = Model()
    for tokens in (1, 8, 9):
        x, ids, mix = kernels.inputs(tokens, 1.0)
        wide = torch.from_numpy(x * 10).to(torch.bfloat16)
        seen = model.forward(0, wide, ids, mix)
        rows, (left, shares) = wide.float().numpy(), kept(ids, mix)
        found[f"{tokens} tokens"] = {
            "from kept, clamped": kernels.distance(seen, references[0].reference(rows, left, shares, LIMIT)),
            "from kept, free": kernels.distance(seen, references[0].reference(rows, left, shares, 0.0)),
            "from all, clamped": kernels.distance(seen, references[0].reference(rows, ids, mix, LIMIT)),
        }
    x, ids, mix = kernels.inputs(3, 1.0)
    rows = torch.from_numpy(x * 10).to(torch.bfloat16)
    left, shares = kept(ids, mix)
    both = sum(each.reference(rows.float().numpy(), left, shares, LIMIT) for each in references)
    deferring = Model(deferred=WIDTH - TOP_K + 1)
    first, second = (deferring.forward(number, rows, ids, mix) for number in range(LAYERS))
    alone = references[0].reference(rows.float().numpy(), left, shares, LIMIT)
    found["deferral"] = {"sum of both layers": kernels.distance(first + second, both),
                         "first layer alone": kernels.distance(first, alone)}  # fmt: skip
    last = EXPERTS - 1
    carded = Model(on_card=(last,))
    carded.forward(0, rows, ids, mix)
    found["on the card"] = {"seen": carded.layers[0][1].gpu_method.ids[0],
                            "wanted": np.where(left == last, 0, -1).tolist()}  # fmt: skip
    return found


def stock(means: list[list[np.ndarray]]) -> dict[str, Any]:
    """The server without the overlay: every expert, no clamp, and no way to leave one out while others are deferred."""
    x, ids, mix = kernels.inputs(3, 1.0)
    wide = torch.from_numpy(x * 10).to(torch.bfloat16)
    model, reference = Model(deferred=2), Reference(means[0])
    seen = Model().forward(0, wide, ids, mix)
    try:
        model.forward(0, wide, kept(ids, mix)[0], mix)
        died = None
    except Exception as error:
        died = type(error).__name__
    rows = wide.float().numpy()
    return {"from all, clamped": kernels.distance(seen, reference.reference(rows, ids, mix, LIMIT)),
            "from all, free": kernels.distance(seen, reference.reference(rows, ids, mix, 0.0)),
            "deferral of -1": died}  # fmt: skip


def main() -> None:
    means = checkpoint()
    os.environ["KTFLEET_OVERLAY"] = json.dumps(ASKED)
    found: dict[str, Any] = {}
    if MODE == "mxfp4":
        os.environ["SGLANG_EXTERNAL_MODEL_PACKAGE"] = "ktfleet.runtime"
        del sys.modules["ktfleet.runtime"]
        import ktfleet.runtime  # noqa: F401
    else:
        from kt_kernel.utils import amx

        stand_in(amx)
        with torch.inference_mode():
            found["stock"] = stock(means)
        from ktfleet.runtime import hooks, settings

        hooks.install(settings.read(os.environ["KTFLEET_OVERLAY"]))
    overlay = overlay_in_place()
    with torch.inference_mode():
        found |= run(means)
        found |= {"refused": refused(), "status": status(overlay)}
    print("\n" + json.dumps(found), flush=True)
    sys.stdout.flush()
    os._exit(0)


def overlay_in_place() -> Any:
    from sglang.srt.layers.moe import quant_method_registry

    (row,) = (row for row in quant_method_registry._QUANT_WRAPPERS if row[1] == "ktfleet")
    return row[2].__self__


def refused() -> str | None:
    """What a model with another limit is answered. MXFP4 keeps its own: nothing is asked for."""
    try:
        Model(limit=7.0)
    except Exception as error:
        return str(error)
    return None


def status(overlay: Any) -> dict[str, Any]:
    overlay.slots.publish()
    overlay.counts.publish()
    overlay._reporter.report()
    overlay._reporter.save_counts()
    counts = torch.load(ASKED["counts"], weights_only=True)["logical_count"]
    return {"file": json.loads(Path(ASKED["status"]).read_text()), "shape": list(counts.shape),
            "counted": int(counts.sum())}  # fmt: skip


if __name__ == "__main__":
    main()
