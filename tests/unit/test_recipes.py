from pathlib import Path

import pytest

from ktfleet import recipes
from ktfleet.problem import Refused

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
    ("dsv4-flash-amxint", "recipe: seen 'dsv4-flash-amxint', wanted one of dsv4-flash-amxint4; "
                          "did you mean 'dsv4-flash-amxint4'?"),
    ("gpt", "recipe: seen 'gpt', wanted one of dsv4-flash-amxint4; use one of these, or the path of a TOML file"),
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
    ("bytes = 208_896", "bytes = 1", "wanted bytes for 4 to 32 bits a weight, 196608 to 1572864; correct experts"),
    ("layers = 2", f"layers = {10**400}", "wanted less than or equal to 1000000000000; correct experts.layers"),
])  # fmt: skip
def test_numbers_that_cannot_be_right(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LAB.read_text().replace(old, new))
    with pytest.raises(Refused) as refused:
        recipes.load(str(file))
    assert wanted in str(refused.value)
