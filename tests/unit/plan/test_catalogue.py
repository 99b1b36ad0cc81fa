"""The server's command line against the options of its real parser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.plan.catalogue import Option, catalogue

KNOWN = catalogue()
REQUIRED = {"model-path": "/srv/models/m"}


def lines(**flags: Any) -> list[str]:
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    return [str(problem) for problem in KNOWN.problems({**REQUIRED, **given}, "mine")]


def test_it_is_the_pinned_versions() -> None:
    assert (KNOWN.package, KNOWN.version) == ("sglang-kt", "0.7.2")
    assert len({option.name for option in KNOWN.options.values()}) == 347


@pytest.mark.parametrize(("flags", "line"), [
    ({"kt_cpu_infer": 40}, "mine: --kt-cpu-infer: seen an unknown flag, wanted one of sglang-kt 0.7.2; "
                           "did you mean 'kt-cpuinfer'?"),
    ({"zebra": 1}, "mine: --zebra: seen an unknown flag, wanted one of sglang-kt 0.7.2; remove it"),
    ({"kt_cpuinfer": "40"}, "mine: --kt-cpuinfer: seen '40', wanted an integer; correct it"),
    ({"kt_cpuinfer": 40.0}, "mine: --kt-cpuinfer: seen 40.0, wanted an integer; correct it"),
    ({"kt_cpuinfer": True}, "mine: --kt-cpuinfer: seen True, wanted an integer; correct it"),
    ({"kt_cpuinfer": (40,)}, "mine: --kt-cpuinfer: seen [40], wanted an integer; correct it"),
    ({"kt_numa_nodes": 0}, "mine: --kt-numa-nodes: seen 0, wanted a list of integers; correct it"),
    ({"kt_numa_nodes": ()}, "mine: --kt-numa-nodes: seen [], wanted a list of integers; correct it"),
    ({"kt_numa_nodes": "0,1"}, "mine: --kt-numa-nodes: seen '0,1', wanted a list of integers; correct it"),
    ({"mem_fraction_static": "0.8"}, "mine: --mem-fraction-static: seen '0.8', wanted a number; correct it"),
    ({"trust_remote_code": 1}, "mine: --trust-remote-code: seen 1, wanted true or false: it takes no value; "
                               "correct it"),
    ({"dtype": "fp8"}, "mine: --dtype: seen 'fp8', wanted one of auto, bfloat16, float, float16, float32, half; "
                       "correct it"),
    ({"max_lora_chunk_size": 17}, "mine: --max-lora-chunk-size: seen 17, wanted one of 16, 32, 64, 128; correct it"),
    ({"preferred_sampling_params": "{}"}, "mine: --preferred-sampling-params: seen '{}', wanted a table; correct it"),
    ({"served_model_name": {"a": 1}}, 'mine: --served-model-name: seen {"a": 1}, wanted a text; correct it'),
    ({"served_model_name": "a\0b"}, "mine: --served-model-name: seen 'a\\x00b', wanted a text; correct it"),
    ({"lora_paths": ("a",)}, "mine: --lora-paths: seen sglang-kt's own LoRAPathAction, wanted a flag with a plain "
                             "value; remove it"),
    ({"hybrid_kvcache_ratio": True}, "mine: --hybrid-kvcache-ratio: seen sglang-kt's own DeprecatedAction, wanted a "
                                     "flag with a plain value; remove it"),
])  # fmt: skip
def test_what_the_parser_would_not_take(flags: dict[str, Any], line: str) -> None:
    assert lines(**flags) == [line]


@pytest.mark.parametrize("flags", [
    {"kt_cpuinfer": 40}, {"kt_numa_nodes": (0, 1)}, {"mem_fraction_static": 1}, {"mem_fraction_static": 0.85},
    {"trust_remote_code": True}, {"trust_remote_code": False}, {"preferred_sampling_params": {"top_p": 0.9}},
    {"dtype": "auto"}, {"tp_size": 1}, {"tensor_parallel_size": 1}, {"debug_tensor_dump_inject": "x"},
])  # fmt: skip
def test_what_it_takes(flags: dict[str, Any]) -> None:
    assert lines(**flags) == []


def test_a_required_flag_is_missed() -> None:
    assert [str(p) for p in KNOWN.problems({}, "mine")] == ["mine: --model-path: seen nothing, wanted a value; set it"]
    assert KNOWN.problems({"model": "/m"}, "mine") == (), "each spelling counts"


def test_words() -> None:
    flags = {"a": 1, "b": True, "c": False, "d": (0, 1), "e": (), "f": {"x": 1}, "g": "-1", "h": "two words"}
    assert KNOWN.argv(flags) == (
        "--a", "1", "--b", "--d", "0", "1", "--f", '{"x": 1}', "--g=-1", "--h", "two words",
    )  # fmt: skip


@given(st.sampled_from(sorted(KNOWN.options)), st.data())
def test_every_plain_option_takes_its_own_kind_and_nothing_else(name: str, data: st.DataObject) -> None:
    option = KNOWN.options[name]
    if option.action != "store" or option.type == "loads":
        return
    good = _value(option)
    value = (good,) if option.nargs in ("+", "*") else good
    assert KNOWN.problems({**REQUIRED, name: value}, "mine") == ()
    wrong = data.draw(st.sampled_from((None, b"", {"a": 1}, True, (True,), ((),))))
    assert len(KNOWN.problems({**REQUIRED, name: wrong}, "mine")) == 1  # type: ignore[dict-item]


def _value(option: Option) -> Any:
    return option.choices[0] if option.choices else {"int": 3, "float": 0.5}.get(option.type or "str", "text")
