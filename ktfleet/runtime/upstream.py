"""THE table of what the overlay relies on in sglang-kt and kt-kernel: read in 0.7.2, December 2026."""

from __future__ import annotations

from ktfleet.runtime.pins import Pin

_WRAPPER = "srt/layers/moe/kt_ep_wrapper.py"
_REGISTRY = "srt/layers/moe/quant_method_registry.py"

PINS = (
    Pin("sglang", _REGISTRY, "register_moe_quant_wrapper", "7f900570c877abe9", "the hook of every layer"),
    Pin("sglang", _REGISTRY, "maybe_wrap_moe_quant_method", "ced190ebb3d1e557", "the hook's order and arguments"),
    Pin("sglang", _REGISTRY, "is_wrapped_method", "3f5ab0b8943c7419", "which layers are hooked"),
    Pin("sglang", _WRAPPER, "_kt_ep_factory", "3a04abf2d0fd52dd", "what the hook gets"),
    Pin("sglang", _WRAPPER, "KTEPWrapperMethod.apply", "c3414060675d6d83", "who sees the routing after the cull"),
    Pin("sglang", _WRAPPER, "KTEPWrapperMethod._submit_with_staged_input", "9eaed7c891dbcb12", "the routing's way"),
    Pin("sglang", _WRAPPER, "KTEPWrapperMethod._submit_cpu_forward", "a7294f74ef68f002", "the routing's way"),
    Pin("sglang", _WRAPPER, "KTEPWrapperMethod.create_weights", "cc863a73aff046f7", "where the clamp is dropped"),
    Pin("sglang", _WRAPPER, "_kt_supports_swiglu_parameters", "fef7ec188a213459", "for which methods it is dropped"),
    Pin("sglang", _WRAPPER, "KTEPWrapperMethod.process_weights_after_loading", "53c71cf43e9a66bd", "when kernels load"),
    Pin("sglang", _WRAPPER, "mask_and_remap_expert_ids", "91fe7ce31d5bd27f", "it is replaced"),
    Pin("sglang", "srt/layers/moe/topk.py", "StandardTopKOutput", "9b120b3f0488214a", "the routing's form"),
    Pin("sglang", "srt/layers/moe/token_dispatcher/standard.py", "StandardDispatchOutput", "aa1af14e3287312c",
        "the routing's form"),
    Pin("sglang", "srt/model_executor/cuda_graph_runner.py", "get_is_capture_mode", "1dd15663a587ea0e",
        "what is decoding"),
    Pin("sglang", "srt/model_executor/cuda_graph_runner.py", "model_capture_mode", "e229005757ee0fd2",
        "what is decoding"),
    Pin("kt_kernel", "experts_base.py", "BaseMoEWrapper.select_deferred_experts", "d7d45bfe833486f6", "it is replaced"),
    Pin("kt_kernel", "experts_base.py", "BaseMoEWrapper._prepare_forward_cpu_buffers", "b72c201893517467",
        "who sees the routing after the cull"),
    Pin("kt_kernel", "experts_base.py", "BaseMoEWrapper.submit_forward", "a792811def9659ae",
        "who sees the routing after the cull"),
    Pin("kt_kernel", "utils/amx.py", "AMXMoEWrapper.load_weights", "eda9122246ff591f", "where the clamp is put back"),
    Pin("sglang", "srt/models/registry.py", "import_model_classes", "557dd457c8cf4a50", "how it is loaded", False),
    Pin("sglang", "srt/models/registry.py", "_ModelRegistry.register", "86ccdc1151c6ac7e", "how it is loaded", False),
    Pin("sglang", _WRAPPER, "create_kt_config_from_server_args", "90c057d59ac035f2", "which layers there are", False),
    Pin("sglang", _WRAPPER, "_init_kt_gpu_experts_masks", "f04ac175befb786f", "the form of the counts", False),
    Pin("kt_kernel", "utils/amx.py", "NativeMoEWrapper.load_weights", "23bc173d7202400d", "how MXFP4 loads", False),
    Pin("kt_kernel", "utils/amx.py", "_select_mxfp4_backend", "300febf8e6d2c09e", "which kernel is tested", False),
)  # fmt: skip
"""A vital one that changed refuses the start. The rest, which the self-test or the first pass would find out, warns."""
