from pathlib import Path
from typing import get_args

import pytest

from ktfleet import recipes
from ktfleet.problem import Refused
from ktfleet.recipes.model import CLAMPING, CONVERTED, METHODS, Method

NAMES = ", ".join(recipes.names())
LAB = Path(__file__).parents[1] / "lab" / "recipe.toml"


@pytest.mark.parametrize("name", recipes.names())
def test_every_packaged_recipe_loads_under_its_own_name(name: str) -> None:
    assert recipes.load(name).name == name


def test_a_path_is_a_recipe_too() -> None:
    assert recipes.load(str(LAB)).name == "lab"


def test_bytes_of_an_expert_follow_from_its_shape() -> None:
    """int4 weights and float32 scales for two pools: gate and up a scale a row, down a scale a row and pool."""
    experts = recipes.load("dsv4-flash-amxint4").experts
    weights = 3 * experts.hidden * experts.intermediate // 2
    scales = 4 * (2 * experts.intermediate + 2 * experts.hidden)
    assert experts.bytes == weights + scales == 12_632_064


def test_shards_cover_all_weights() -> None:
    recipe = recipes.load("dsv4-flash-amxint4")
    assert all(recipe.shard_bytes(pools) * pools >= recipe.experts.total_bytes for pools in (1, 2, 3))


@pytest.mark.parametrize(("name", "line"), [
    ("dsv4-flash-amxint", f"recipe: seen 'dsv4-flash-amxint', wanted one of {NAMES}; "
                          "did you mean 'dsv4-flash-amxint4'?"),
    ("dsv4-flash-mxfp4-top5", f"recipe: seen 'dsv4-flash-mxfp4-top5', wanted one of {NAMES}; "
                              "did you mean 'dsv4-flash-mxfp4-top4'?"),
    ("gpt", f"recipe: seen 'gpt', wanted one of {NAMES}; use one of these, or the path of a TOML file"),
    ("no/such.toml", "no/such.toml: seen No such file or directory, wanted a readable TOML file; "
                     "check the path and its text"),
])  # fmt: skip
def test_a_recipe_that_is_not_there(name: str, line: str) -> None:
    with pytest.raises(Refused) as refused:
        recipes.load(name)
    assert str(refused.value) == line


def test_a_bad_recipe_names_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LAB.read_text().replace("layers = 2\n", 'layer = 2\ncount = "8"\n').replace("count = 8\n", ""))
    with pytest.raises(Refused) as refused:
        recipes.load(str(file))
    assert [line.split(":")[1].strip() for line in str(refused.value).splitlines()] == [
        "experts.layers", "experts.count", "experts.layer",
    ]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "wanted"), [
    ("per_token = 2", "per_token = 9", "wanted per_token of at most count, 8; correct experts"),
    ("bytes = 208_896", "bytes = 1", "wanted bytes for 1 to 32 bits a weight, 49152 to 1572864; correct experts"),
    ("layers = 2", f"layers = {10**400}", "wanted less than or equal to 1000000000000; correct experts.layers"),
])  # fmt: skip
def test_numbers_that_cannot_be_right(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LAB.read_text().replace(old, new))
    with pytest.raises(Refused) as refused:
        recipes.load(str(file))
    assert wanted in str(refused.value)


def test_what_the_issue_of_the_recipes_names_is_there() -> None:
    """Numbers that are known, so that no inheritance loses one."""

    def told(name: str) -> tuple[object, ...]:
        recipe = recipes.load(name)
        offload = recipe.offload
        return (recipe.method, recipe.top_k, offload.clamp, offload.gpu_experts > 0, recipe.speculation is not None)

    assert {name: told(name) for name in recipes.names()} == {
        "dsv4-flash-amxint4": ("AMXINT4", 6, True, False, False),
        "dsv4-flash-amxint4-top4": ("AMXINT4", 4, True, False, False),
        "dsv4-flash-mxfp4": ("MXFP4", 6, True, False, False),
        "dsv4-flash-mxfp4-eagle": ("MXFP4", 6, True, True, True),
        "dsv4-flash-mxfp4-top4": ("MXFP4", 4, True, False, False),
        "qwen3-30b-a3b-bf16": ("BF16", 8, True, True, False),
    }
    assert recipes.load("dsv4-flash-amxint4-top4").offload.deferred > 0
    assert {
        name: recipes.load(name).published[0].tok_s for name in recipes.names() if recipes.load(name).published
    } == {
        "dsv4-flash-amxint4-top4": 28.0,
        "dsv4-flash-mxfp4-eagle": 25.0,
    }


def test_bytes_read_for_a_token() -> None:
    """3.259 GB at six int4 experts, 2.173 at four; MXFP4 holds 155.8 GB in all."""
    experts = recipes.load("dsv4-flash-amxint4").experts
    assert [round(k * experts.layers * experts.bytes / 1e9, 3) for k in (6, 4)] == [3.259, 2.173]
    assert round(recipes.load("dsv4-flash-mxfp4").experts.total_bytes / 1e9, 1) == 155.8


def test_cache_bytes_follow_from_the_models_shape() -> None:
    """sglang-kt 0.7.2's formula (memory_profiler.py) for 44 layers with the model's compression ratios."""

    def per_token(swa: float, ring4: int, ring128: int) -> float:
        kv, indexer, layers, by4, by128, window = 448 + 64 * 2 + 8, 128 + 4, 44, 21, 20, 128
        states = ring4 / window * (4 * 512 * 4 + 4 * 128 * 4) * by4 + ring128 / window * 2 * 512 * 4 * by128
        return swa * (kv * layers + states) + by4 * (kv + indexer) / 4 + by128 * kv / 128

    assert recipes.load("dsv4-flash-mxfp4").context.bytes_per_token == round(per_token(0.1, 8, 128))
    assert recipes.load("dsv4-flash-mxfp4-eagle").context.bytes_per_token == round(per_token(0.1, 16, 256))


def write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.toml").write_text(f'name = "{name}"\n{text}')
    return str(folder / f"{name}.toml")


def test_a_recipe_says_only_what_differs(tmp_path: Path) -> None:
    base = recipes.load("dsv4-flash-amxint4-top4")
    mine = recipes.load(write(tmp_path, "mine", 'inherits = "dsv4-flash-amxint4-top4"\naccuracy = "?"\n'
                                                "[offload]\ntop_k = 5\n"))  # fmt: skip
    assert (mine.offload.top_k, mine.offload.deferred, mine.experts) == (5, 3, base.experts)
    assert mine.published == (), "a figure belongs to the recipe that it was measured with"


def test_what_a_recipe_costs_is_not_inherited(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"accuracy: seen nothing, wanted a value; add accuracy"):
        recipes.load(write(tmp_path, "mine", 'inherits = "dsv4-flash-amxint4"\n'))


def test_a_relative_path_is_inherited_from_the_files_folder(tmp_path: Path) -> None:
    write(tmp_path, "base", 'inherits = "dsv4-flash-mxfp4"\naccuracy = "?"\n[offload]\ndeferred = 2\n')
    assert recipes.load(write(tmp_path, "top", 'inherits = "base.toml"\naccuracy = "?"\n')).offload.deferred == 2


@pytest.mark.parametrize(("text", "line"), [
    ('inherits = "dsv4-flash-mxpf4"', "did you mean 'dsv4-flash-mxfp4'?"),
    ("inherits = 4", "inherits: seen 4, wanted a recipe's name or path; correct inherits"),
    ('inherits = "./mine.toml"', "inherits: seen './mine.toml', which inherits this one, wanted no circle"),
    ('inherits = "gone.toml"', "gone.toml: seen No such file or directory"),
])  # fmt: skip
def test_a_wrong_parent(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(Refused) as refused:
        recipes.load(write(tmp_path, "mine", text))
    assert line in str(refused.value)


def test_a_host_overrides_any_field() -> None:
    found = recipes.load("dsv4-flash-amxint4", {"offload": {"top_k": 5}, "sampling": {"temperature": 0.2}}, "ws03")
    assert (found.top_k, found.sampling.temperature, found.sampling.top_p) == (5, 0.2, 1.0)


@pytest.mark.parametrize(("override", "line"), [
    ({"offload": {"topk": 5}}, "ws03: override: offload.topk: seen an unknown key, wanted one of cpuinfer, pools, "
                               "numa_nodes, top_k, adaptive, count_routing, clamp, gpu_experts, placement, "
                               "placement_file, deferred, gpu_prefill_threshold; did you mean 'top_k'?"),
    ({"offload": {"top_k": "5"}}, "ws03: override: offload.top_k: seen '5', wanted a valid integer; "
                                  "correct offload.top_k"),
    ({"method": "AMXITN4"}, "override: method: seen 'AMXITN4', wanted 'AMXINT4', 'AMXINT8', 'BF16', 'FP8', "
                            "'FP8_PERCHANNEL', 'GPTQ_INT4', 'LLAMAFILE', 'MXFP4', 'MXFP8' or 'RAWINT4'; "
                            "did you mean 'AMXINT4'?"),
    ({"offload": {"top_k": 7}}, "wanted offload.top_k of at most 6"),
    ({"offload": {"deferred": 9, "gpu_experts": 300}}, "offload.gpu_experts of at most 256 and offload.deferred of at "
                                                       "most 5"),
    ({"context": {"length": 200_000}}, "wanted a length of at most total_tokens, 131072; correct context"),
    ({"offload": {"placement": "frequency"}}, 'wanted placement_file together with placement = "frequency" only'),
    ({"flags": {"cuda-graph-bs": {"a": [1]}}}, "override: flags.cuda-graph-bs: seen {'a': [1]}, wanted true, a number"),
    ({"flags": {"cuda-graph-bs": [[1]]}}, "wanted true, a number, a text, or a list or table of them"),
    ({"environment": {"A": "1\n2"}}, "override: environment.A"),
    ({"accept": {"deferred": "two\nlines"}}, "override: accept.deferred"),
    ({"environment": {"A B": "1"}}, "override: environment.A B"),
    ({"accept": {"deferred": " "}}, "override: accept.deferred: seen ' '"),
])  # fmt: skip
def test_an_override_is_typed(override: dict[str, object], line: str) -> None:
    with pytest.raises(Refused) as refused:
        recipes.load("dsv4-flash-amxint4", override, "ws03")
    assert line in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("name", recipes.names())
def test_a_method_brings_its_cpu_flags_along(name: str) -> None:
    assert set(METHODS[recipes.load(name).method]) <= set(recipes.load(name).needed_flags)


def test_the_methods_are_one_list() -> None:
    assert set(METHODS) == set(get_args(Method)) > {*CONVERTED, *CLAMPING}


@pytest.mark.parametrize("name", recipes.names())
def test_what_nobody_measured_is_marked(name: str) -> None:
    """The model's own numbers and the sizes that follow from them are not; everything that somebody chose is."""
    recipe = recipes.load(name)
    chosen = {"memory.reserve_per_node_mib"}
    chosen |= {f"context.{key}" for key in ("length", "total_tokens", "running_requests", "prefill_chunk",
                                            "memory_fraction")}  # fmt: skip
    chosen |= {f"sampling.{key}" for key in recipe.sampling.model_dump(exclude_none=True)}
    chosen |= {f"offload.{key}" for key in ("deferred", "gpu_experts") if getattr(recipe.offload, key)}
    chosen |= {"speculation.steps", "speculation.draft_tokens"} if recipe.speculation else set()
    assert set(recipe.estimates) == chosen


@pytest.mark.parametrize("key", ["context.lenght", "length", "speculation.steps", "", "context.", "context.length.x"])
def test_an_estimate_is_of_a_key_that_has_a_value(tmp_path: Path, key: str) -> None:
    text = f'inherits = "dsv4-flash-mxfp4"\naccuracy = "?"\n[estimates]\n"{key}" = "why"\n'
    with pytest.raises(Refused, match="estimates of keys that have a value"):
        recipes.load(write(tmp_path, "mine", text))
