"""Weights on a disk: what is complete, and every way in which they are not."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktfleet import recipes
from ktfleet.plan.weights.wanted import layout
from ktfleet.sources import Converter
from ktfleet.weights import manifest, verify
from ktfleet.weights.layout import FILE, KEY, Layout
from tests.weights import SMALL, write_checkpoint, write_index, write_kt, write_merged, write_safetensors

ONE_POOL = Layout(SMALL.layers, SMALL.experts, SMALL.hidden, SMALL.intermediate, pools=1)
SHARD = "model-00001-of-00003.safetensors"
LAST = "model-00003-of-00003.safetensors"
INDEX = "model.safetensors.index.json"
FIXTURES = Path(__file__).parents[2] / "fixtures/weights"


def problems(folder: Path, wanted: Layout = SMALL, *, deep: bool = False) -> list[str]:
    return [str(problem) for problem in verify.converted(folder, wanted, deep=deep)]


def first_file(layer: int = 0) -> str:
    return next(SMALL.filed(layer))[1]


def weight_map(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return found


def test_the_packaged_recipe_has_the_sizes_of_converted_shards() -> None:
    wanted = layout(recipes.load("dsv4-flash-amxint4"), pools=2)
    assert wanted.count == 132_096
    assert wanted.total_bytes == recipes.load("dsv4-flash-amxint4").experts.total_bytes
    assert [wanted.size(p, "weight") for p in ("gate", "up", "down")] == [2_097_152] * 3
    assert [wanted.size(p, "scale") for p in ("gate", "up", "down")] == [4096, 4096, 16_384]
    assert next(wanted.filed(0))[1] == "_layer_0/_numa_0/INT4_down_0_16384Byte_scale_.kt"


@pytest.mark.parametrize("pools", [1, 2])
def test_the_real_converter_writes_these_tensors(pools: int) -> None:
    converted = json.loads((FIXTURES / "converted.json").read_text())
    assert converted["converter"] == Converter().sha256
    made = converted["pools"][str(pools)]
    wanted = Layout(**converted["sizes"], pools=pools)
    experts = {key: tensor for key, tensor in made["tensors"].items() if KEY.fullmatch(key)}
    assert experts == {
        key: [f"model-{layer + 1:05d}-of-00003.safetensors", part.dtype, list(part.shape)]
        for layer in range(wanted.layers)
        for part, key in wanted.named(layer)
    }
    assert set(made["tensors"]) - set(experts) == {"blk.0.attn.wq.weight", "blk.1.attn.wq.weight"}


@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from((8, 32)), st.sampled_from((1, 2, 4)))
def test_every_tensor_has_one_name_and_they_add_up(layers: int, experts: int, hidden: int, pools: int) -> None:
    wanted = Layout(layers, experts, hidden, intermediate=16, pools=pools)
    named = [tensor for layer in range(layers) for tensor in wanted.named(layer)]
    filed = [tensor for layer in range(layers) for tensor in wanted.filed(layer)]
    assert [part for part, _ in named] == [part for part, _ in filed]
    assert len(dict(map(reversed, named))) == len(dict(map(reversed, filed))) == len(named) == wanted.count
    assert sum(part.bytes for part, _ in named) == wanted.total_bytes
    assert all(KEY.fullmatch(key) for _, key in named)
    assert all(FILE.fullmatch(path.split("/")[2]) for _, path in filed)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("wanted", [SMALL, ONE_POOL])
def test_complete_weights_of_both_layouts(tmp_path: Path, wanted: Layout, deep: bool) -> None:
    assert problems(write_merged(tmp_path / "merged", wanted), wanted, deep=deep) == []
    assert problems(write_kt(tmp_path / "kt", wanted), wanted, deep=deep) == []


@pytest.mark.parametrize("write", [write_merged, write_kt])
def test_another_number_of_pools_is_one_line(tmp_path: Path, write: object) -> None:
    assert callable(write)
    (line,) = problems(write(tmp_path / "one", ONE_POOL), SMALL)
    assert line.startswith("made for another number of pools: seen 1, wanted 2; convert with --threadpool-count 2;")
    assert "segmentation fault" in line
    (line,) = problems(write(tmp_path / "two", SMALL), ONE_POOL)
    assert line.startswith("made for another number of pools: seen 2, wanted 1;")
    assert "NaN" in line


def test_a_missing_layer_is_one_line(tmp_path: Path) -> None:
    absent = [key for _, key in SMALL.named(1)]
    (line,) = problems(write_merged(tmp_path, SMALL, skip=absent))
    assert line.startswith(f"all 36 tensors of layer 1 are missing: seen first {absent[0]}, wanted 36 a layer;")


def test_neighbouring_layers_with_as_many_missing_are_one_line(tmp_path: Path) -> None:
    absent = [key for layer in (0, 1) for _, key in SMALL.named(layer) if "_exps.2." in key]
    (line,) = problems(write_merged(tmp_path, SMALL, skip=absent))
    assert line.startswith("24 tensors of layers 0-1 are missing: seen first blk.0.ffn_down_exps.2.numa.0.scale")


def test_a_missing_scale_file_of_a_tree(tmp_path: Path) -> None:
    folder = write_kt(tmp_path, SMALL)
    (folder / first_file(1)).unlink()
    (line,) = problems(folder)
    assert line.startswith("1 files of layer 1 are missing: seen first _layer_1/_numa_0/INT4_down_0_128Byte_scale_.kt")


def test_a_truncated_file_of_a_tree(tmp_path: Path) -> None:
    folder = write_kt(tmp_path, SMALL)
    with (folder / first_file()).open("r+b") as file:
        file.truncate(100)
    (line,) = problems(folder)
    assert "1 files of layer 0 have another size: seen first" in line
    assert "of 100 bytes" in line


def test_a_tree_with_odd_things(tmp_path: Path) -> None:
    folder = write_kt(tmp_path, SMALL)
    place = folder / first_file()
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    (folder / "_layer_7/_numa_0").mkdir(parents=True)
    (folder / "_layer_7/_numa_0/INT4_up_0_256Byte_quant_.kt").write_bytes(b"")
    lines = problems(folder)
    assert [line.partition(":")[0] for line in lines] == [
        "the tree holds no regular files", "1 files of layer 0 are missing", "files that the model has not",
    ]  # fmt: skip


def test_a_truncated_shard(tmp_path: Path) -> None:
    folder = write_merged(tmp_path, SMALL)
    size = (folder / SHARD).stat().st_size
    with (folder / SHARD).open("r+b") as file:
        file.truncate(size - 1)
    (line,) = problems(folder)
    assert line.startswith(f"{SHARD} is broken: seen truncated, {size - 1} bytes, wanted {size} bytes, as its header")


@pytest.mark.parametrize(("content", "seen"), [
    (b"", "0 bytes"),
    (b"\xff" * 8, "8 bytes"),
    (b"\xff" * 40, "a header of 18446744073709551615 bytes in a file of 40"),
    (struct.pack("<Q", 6) + b"[1, 2]", "JSON that is a list"),
    (struct.pack("<Q", 4) + b"{\"a\"", "broken JSON"),
    (struct.pack("<Q", 16) + b'{"a":{},"a":{}} ', "a twice"),
    (struct.pack("<Q", 8) + b'{"a":{}}', "a described as {}"),
    (struct.pack("<Q", 60000) + b"[" * 60000, "broken JSON"),
])  # fmt: skip
def test_a_header_that_lies(tmp_path: Path, content: bytes, seen: str) -> None:
    folder = write_merged(tmp_path, SMALL)
    (folder / SHARD).write_bytes(content)
    (line,) = problems(folder)
    assert line.startswith(f"{SHARD} is broken: seen {seen}")


@pytest.mark.parametrize(("entry", "seen"), [
    ({"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}, "b overlaps"),
    ({"dtype": "I8", "shape": [4], "data_offsets": [5, 9]}, "b leaves a hole after a"),
    ({"dtype": "I8", "shape": [5], "data_offsets": [4, 8]}, "b at 4-8, wanted 5 bytes for I8 [5]"),
    ({"dtype": "I9", "shape": [4], "data_offsets": [4, 8]}, "b described as"),
    ({"dtype": "I8", "shape": [-4], "data_offsets": [4, 8]}, "b described as"),
    ({"dtype": "I8", "shape": [2.0], "data_offsets": [4, 8]}, "b described as"),
    ({"dtype": "I8", "shape": [2**50, 2**50], "data_offsets": [4, 8]}, "b of more than"),
    ({"dtype": "I8", "shape": [True], "data_offsets": [4, 5]}, "b described as"),
    ({"dtype": "I8", "shape": [4], "data_offsets": [8, 4]}, "b at 8-4"),
])  # fmt: skip
def test_offsets_that_lie(tmp_path: Path, entry: dict[str, object], seen: str) -> None:
    folder = write_merged(tmp_path, SMALL)
    write_safetensors(folder / LAST, {"a": ("I8", (4,)), "b": ("I8", (4,))}, b=entry)
    kept = {key: name for key, name in weight_map(folder).items() if name != LAST}
    write_index(folder, {**kept, "a": LAST, "b": LAST})
    (line,) = problems(folder)
    assert line.startswith(f"{LAST} is broken: seen {seen}")


def test_a_conversion_that_was_not_finished(tmp_path: Path) -> None:
    folder = write_merged(tmp_path, SMALL)
    (folder / INDEX).unlink()
    (folder / SHARD).rename(folder / "model-00001-of-PLACEHOLDER.safetensors")
    (line,) = problems(folder)
    assert line.startswith("the conversion was not finished: seen 1 files named so, first model-00001-of-PLACEHOLDER")


def test_files_without_index_and_index_without_files(tmp_path: Path) -> None:
    folder = write_merged(tmp_path, SMALL)
    (folder / SHARD).unlink()
    lines = problems(folder)
    assert lines[0].startswith(f"files of the index are missing: seen {SHARD}, wanted all of them")
    assert lines[1].startswith("all 36 tensors of layer 0 are missing")
    assert len(lines) == 2
    (folder / INDEX).unlink()
    (line,) = problems(folder)
    assert line.startswith(f"{INDEX} is missing: seen 2 .safetensors files without it")


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    assert problems(tmp_path)[0].startswith(f"{INDEX} is missing: seen neither it nor a file of weights")
    assert "cannot be read: seen no such file or directory" in problems(tmp_path / "none")[0]


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "", ".safetensors", 7])
def test_an_index_that_leads_out_of_the_folder(tmp_path: Path, name: object) -> None:
    folder = write_merged(tmp_path, SMALL)
    write_index(folder, {**weight_map(folder), "x": name})  # type: ignore[dict-item]
    (line,) = problems(folder)
    assert line.startswith(f"{INDEX} is broken: seen x in")


def test_a_shard_that_is_a_symlink(tmp_path: Path) -> None:
    folder = write_merged(tmp_path / "weights", SMALL)
    (folder / SHARD).rename(tmp_path / "outside")
    (folder / SHARD).symlink_to(tmp_path / "outside")
    (line,) = problems(folder)
    assert line.startswith(f"{SHARD} is broken: seen a symlink to {tmp_path}/outside")


def test_an_index_of_a_terabyte_is_not_read(tmp_path: Path) -> None:
    folder = write_merged(tmp_path, SMALL)
    with (folder / INDEX).open("r+b") as file:
        file.truncate(2**40)
    (line,) = problems(folder)
    assert line.startswith(f"{INDEX} is broken: seen {2**40} bytes, wanted at most")


def test_tensors_in_two_files_and_beside_the_index(tmp_path: Path) -> None:
    folder = write_merged(tmp_path, SMALL)
    part, key = next(SMALL.named(0))
    write_safetensors(folder / LAST, {key: (part.dtype, part.shape), "odd\nname": ("I8", (1,))})
    lines = problems(folder)
    assert lines[0].startswith(f"1 tensors of {LAST} are in another file too: seen {key}")
    assert lines[1].startswith(f"{LAST} lacks tensors of the index: seen 2: blk.0.attn.scale, embed.weight")
    assert lines[2].startswith(f"{LAST} has tensors that the index does not place there: seen 1: 'odd\\nname'")


def test_another_type_and_tensors_of_another_model(tmp_path: Path) -> None:
    folder = write_merged(tmp_path, SMALL)
    bigger = Layout(SMALL.layers, SMALL.experts + 1, SMALL.hidden, SMALL.intermediate, SMALL.pools)
    lines = problems(write_merged(tmp_path / "bigger", bigger))
    assert lines[0].startswith("tensors that the model has not: seen 24: blk.0.ffn_down_exps.3.numa.0.scale")
    wider = Layout(SMALL.layers, SMALL.experts, 64, SMALL.intermediate, SMALL.pools)
    (line,) = problems(folder, wider)
    assert line.startswith("48 tensors of layers 0-1 have another type or shape: seen first blk.0.ffn_down_exps.0")


def test_two_layouts_in_one_folder(tmp_path: Path) -> None:
    write_kt(write_merged(tmp_path, SMALL), SMALL)
    (line,) = problems(tmp_path)
    assert line.startswith("two layouts in one folder")


def test_deep_finds_a_changed_byte_later(tmp_path: Path) -> None:
    for folder in (write_merged(tmp_path / "merged", SMALL), write_kt(tmp_path / "kt", SMALL)):
        assert problems(folder, deep=True) == []
        held = json.loads((folder / manifest.NAME).read_text())["files"]
        victim = next(name for name in held if name.endswith((".safetensors", "quant_.kt")))
        path = folder / victim
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert problems(folder) == [], "headers and sizes are as before"
        (line,) = problems(folder, deep=True)
        assert line.startswith(f"files have other bytes than when they were proven: seen 1: {victim}, wanted none;")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_deep_finds_scales_that_are_no_numbers(tmp_path: Path, value: float) -> None:
    folder = write_kt(tmp_path, SMALL)
    path = folder / first_file()
    path.write_bytes(struct.pack("<f", value) + path.read_bytes()[4:])
    assert problems(folder) == []
    (line,) = problems(folder, deep=True)
    assert line.startswith("files have scales that are NaN or infinite: seen 1: _layer_0/_numa_0/INT4_down_0_128Byte")
    assert not (folder / manifest.NAME).exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 64), st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_scales_are_found_across_blocks(tmp_path: Path, block: int, values: list[float]) -> None:
    """Whatever is read at once, no scale is missed and none is taken for another."""
    path = tmp_path / "scales"
    path.write_bytes(b"abc" + struct.pack(f"<{len(values)}f", *values) + b"\xff" * 5)
    middle = 3 + 4 * (len(values) // 2)
    spans = ((3, middle), (middle, 3 + 4 * len(values)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "BLOCK", block)
        read = manifest.read_bytes(path, manifest.File(path.stat().st_size, spans))
    assert read.not_finite == sum(not math.isfinite(value) for value in values)


@pytest.mark.parametrize("text", ["{", "{}", '{"files": {"../x": {"size": 1}}}', '{"files": {"a": {"size": "1"}}}'])
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    folder = write_merged(tmp_path, SMALL)
    (folder / manifest.NAME).write_text(text)
    (line,) = problems(folder)
    assert line.startswith("the manifest .ktfleet.json cannot be read: seen")


def test_a_file_that_was_proven_is_gone_or_has_another_size(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    assert verify.checkpoint(folder, deep=True) == ()
    held = json.loads((folder / manifest.NAME).read_text())
    held["files"]["tokenizer.json"] = {"size": 3}
    held["files"][SHARD.replace("3.", "2.")]["size"] += 1
    (folder / manifest.NAME).write_text(json.dumps(held))
    lines = [str(problem) for problem in verify.checkpoint(folder)]
    assert [line.partition(":")[0] for line in lines] == [
        "files have another size than when they were proven", "files that were proven are gone",
    ]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=30))
def test_no_bytes_in_a_header_raise(tmp_path: Path, at: int, junk: bytes) -> None:
    """Whatever a shard says, it is lines of problems or nothing."""
    folder = write_merged(tmp_path / "weights", SMALL)
    content = bytearray((folder / SHARD).read_bytes())
    content[at : at + len(junk)] = junk
    (folder / SHARD).write_bytes(content)
    assert all(": seen " in line and "\n" not in line for line in problems(folder))
