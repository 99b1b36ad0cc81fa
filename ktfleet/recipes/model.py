"""The types of a recipe. Sizes are bytes unless the name says otherwise."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from ktfleet.recipes.checkpoint import Checkpoint
from ktfleet.validation import Strict

Positive = Annotated[int, Field(ge=1, le=10**12)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Text = Annotated[str, Field(pattern=r"\S")]
Reason = Annotated[str, Field(pattern=r"^[^\n]*\S[^\n]*$")]
Line = Annotated[str, Field(pattern=r"^[^\n\x00]+$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

_AVX512 = ("avx512f", "avx512bw")
METHODS: dict[str, tuple[str, ...]] = {
    "AMXINT4": _AVX512,
    "AMXINT8": _AVX512,
    "BF16": ("avx2",),
    "FP8": ("avx2",),
    "FP8_PERCHANNEL": _AVX512,
    "GPTQ_INT4": ("avx2",),
    "LLAMAFILE": ("avx2",),
    "MXFP4": ("avx2",),
    "MXFP8": ("avx2",),
    "RAWINT4": ("avx2",),
}
"""kt-kernel's method -> the CPU flags without which it has no code at all. Neither VNNI nor AMX is one of them.
Read in kt_kernel 0.7.2 (experts.py, utils/amx.py and the classes of its avx2 and avx512_base variants)."""

Method = Literal[
    "AMXINT4", "AMXINT8", "BF16", "FP8", "FP8_PERCHANNEL", "GPTQ_INT4", "LLAMAFILE", "MXFP4", "MXFP8", "RAWINT4"
]
CONVERTED = ("AMXINT4", "AMXINT8")
"""Methods whose weights are converted, for a number of pools; every other one reads the checkpoint itself."""

CLAMPING = ("MXFP4", "MXFP8")
"""Methods to which sglang-kt 0.7.2 passes the model's SwiGLU limit; for every other one it is dropped silently."""


class Experts(Strict):
    """The routed experts. `bytes` is one expert with its scales, as kt-kernel holds it in memory.

    swiglu_limit: the model's own limit on what the activation gets; None: it has none.
    """

    layers: Positive
    count: Positive
    per_token: Positive
    hidden: Positive
    intermediate: Positive
    bytes: Positive
    swiglu_limit: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _numbers_agree(self) -> Self:
        if self.per_token > self.count:
            raise ValueError(f"per_token of at most count, {self.count}")
        if not self.weights // 8 <= self.bytes <= self.weights * 4:
            raise ValueError(f"bytes for 1 to 32 bits a weight, {self.weights // 8} to {self.weights * 4}")
        return self

    @property
    def weights(self) -> int:
        """Numbers in one expert: gate, up and down."""
        return 3 * self.hidden * self.intermediate

    @property
    def bits(self) -> float:
        """Bits a weight, scales included."""
        return self.bytes * 8 / self.weights

    @cached_property
    def total_bytes(self) -> int:
        """All routed experts of all layers, in bytes."""
        return self.layers * self.count * self.bytes


class Memory(Strict):
    """What each NUMA node needs beside its shard, in MiB: the system, the server's processes, page cache."""

    reserve_per_node_mib: Positive


class Adaptive(Strict):
    """How fewer than top_k experts of a decoded token are computed: beyond the first `least`, each needs `share` of the
    token's weight.
    """

    least: Positive
    share: Annotated[float, Field(gt=0, lt=1)]


class Offload(Strict):
    """How the routed experts are divided between CPUs and GPU.

    cpuinfer: worker threads over all pools; None: the rule, one a physical core (and where no hyperthread is left for
    the other threads, a core a node less). pools: of workers; None: the rule, one a NUMA node. numa_nodes: the node of
    each pool; None: the pool's own number. top_k: experts computed for each decoded token; None: all that the router
    picks. adaptive: where the router is sure, fewer; None: always top_k. count_routing: the server writes how often
    each expert was computed, for placement_file. clamp: the model's SwiGLU limit is kept. gpu_experts: of each layer,
    on the GPU. placement: which ones; "frequency" takes them from placement_file. deferred: experts of a token whose
    result may come one layer later. gpu_prefill_threshold: prompts of more tokens are computed on the GPU, layer by
    layer.
    """

    cpuinfer: Positive | None = None
    pools: Positive | None = None
    numa_nodes: Annotated[tuple[Count, ...], Field(strict=False)] | None = None
    top_k: Positive | None = None
    adaptive: Adaptive | None = None
    count_routing: bool = False
    clamp: bool = True
    gpu_experts: Count = 0
    placement: Literal["uniform", "front-loading", "random", "frequency"] = "uniform"
    placement_file: Annotated[str, Field(pattern=r"^/[^\n]*$")] | None = None
    deferred: Count = 0
    gpu_prefill_threshold: Positive | None = None

    @model_validator(mode="after")
    def _placement_has_its_file(self) -> Self:
        if (self.placement == "frequency") != (self.placement_file is not None):
            raise ValueError('placement_file together with placement = "frequency" only')
        return self


class Context(Strict):
    """What the card holds beside experts.

    length: tokens of the longest request, prompt and answer. total_tokens: of all running requests together.
    bytes_per_token: of the cache. memory_fraction: of the card's memory for weights and cache; the rest is for
    activations and CUDA graphs. weights_bytes: of the model without its routed experts, on the card.
    expert_bytes: of one routed expert on the card.
    """

    length: Positive
    total_tokens: Positive
    running_requests: Positive
    prefill_chunk: Positive
    memory_fraction: Annotated[float, Field(gt=0, lt=1)]
    bytes_per_token: Positive
    weights_bytes: Positive
    expert_bytes: Positive

    @model_validator(mode="after")
    def _a_request_fits(self) -> Self:
        if self.length > self.total_tokens:
            raise ValueError(f"a length of at most total_tokens, {self.total_tokens}")
        return self


class Sampling(Strict):
    """What a request gets that does not ask for something else."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Positive | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None


class Api(Strict):
    """How clients see the model: its name, and sglang's parsers of tool calls and of the reasoning."""

    model_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None


class Speculation(Strict):
    """Drafting with the model's own next-token head. sglang-kt 0.7.2 takes EAGLE with topk 1 alone for DeepSeek-V4."""

    algorithm: Literal["EAGLE"]
    steps: Positive
    draft_tokens: Positive


class Published(Strict):
    """A decode rate that somebody published: tokens a second of one stream.

    It is only compared with a server of this method and top_k on a host with these sockets and cores; hardware says in
    words what it was.
    """

    tok_s: Annotated[float, Field(gt=0)]
    method: Method
    top_k: Positive
    sockets: Positive
    cores_per_socket: Positive
    hardware: Text
    date: date
    source: Text


def _flag(value: object) -> object:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if not all(type(item) in (bool, int, float, str) for item in inner):
        raise ValueError("true, a number, a text, or a list or table of them")
    return tuple(value) if isinstance(value, list) else value


Flag = Annotated[Any, AfterValidator(_flag)]
"""A value of one of the server's flags; which type it must have, the catalogue knows."""


class Recipe(Strict):
    """A model, the kt-kernel method its experts use, how it is served, and what all of it demands of a host.

    inherits: the recipe that gives every field that is not named here, except `published` and `accuracy`: they are
    of one recipe alone. start_limit_s: seconds from its start until it must have generated a token; the first start
    compiles. decode_spread: of repeated rates, above which none is believed; a heat-soaked machine beside a
    cold one shows 4 %. method: kt-kernel's. cpu_flags: beyond what the method needs, names as in /proc/cpuinfo.
    accuracy: what it costs, in words. accept: guard rail -> why it is crossed all the same. flags: more of the
    server's own flags, without the dashes. environment: variables that this model needs. estimates: what nobody has
    measured, by its key as "offload.deferred" -> what it rests on.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    model: Annotated[str, Field(pattern=r"^[^/\n]+$")]
    inherits: str | None = None
    method: Method
    cpu_flags: Annotated[tuple[str, ...], Field(strict=False)] = ()
    checkpoint: Checkpoint | None = None
    experts: Experts
    memory: Memory
    offload: Offload = Offload()
    context: Context
    sampling: Sampling = Sampling()
    api: Api
    speculation: Speculation | None = None
    start_limit_s: Positive = 1800
    decode_spread: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    accuracy: Text
    published: Annotated[tuple[Published, ...], Field(strict=False)] = ()
    accept: dict[str, Reason] = Field(default_factory=dict)
    flags: dict[str, Flag] = Field(default_factory=dict)
    environment: dict[Variable, Line] = Field(default_factory=dict)
    estimates: dict[str, Reason] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _estimates_are_of_keys(self) -> Self:
        unknown = [key for key in self.estimates if self.at(key) is None]
        if unknown:
            raise ValueError(f"estimates of keys that have a value, not of {', '.join(unknown)}")
        return self

    @model_validator(mode="after")
    def _offload_fits_the_model(self) -> Self:
        most = {
            "top_k": (self.offload.top_k or 1, self.experts.per_token),
            "gpu_experts": (self.offload.gpu_experts, self.experts.count),
            "adaptive.least": (self.offload.adaptive.least if self.offload.adaptive else 1, self.top_k),
            "deferred": (self.offload.deferred, self.experts.per_token - 1),
        }
        wrong = [f"offload.{name} of at most {limit}" for name, (value, limit) in most.items() if value > limit]
        if wrong:
            raise ValueError(" and ".join(wrong))
        return self

    def at(self, key: str) -> object:
        """The value of a key like "context.length"; None: it has none, or there is no such key."""
        table, _, name = key.partition(".")
        return getattr(getattr(self, table, None), name, None) if table in type(self).model_fields else None

    @property
    def needed_flags(self) -> tuple[str, ...]:
        """CPU flags without which the recipe cannot run."""
        return tuple(dict.fromkeys((*METHODS[self.method], *self.cpu_flags)))

    @property
    def top_k(self) -> int:
        """Experts computed for each decoded token."""
        return self.offload.top_k or self.experts.per_token

    @property
    def clamps(self) -> bool:
        """Whether the model has a SwiGLU limit that the method would drop by itself."""
        return self.experts.swiglu_limit is not None and self.method not in CLAMPING

    def shard_bytes(self, pools: int) -> int:
        """Bytes of expert weights that each of `pools` NUMA nodes holds (rounded up)."""
        return -(-self.experts.total_bytes // pools)

    @property
    def reserve_bytes(self) -> int:
        """Bytes that each node keeps for everything but expert weights."""
        return self.memory.reserve_per_node_mib * 1024**2
