"""The verdicts on the server's environment, on a captured measurement and on what can be wrong with one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.config import Workstation, parse
from ktfleet.judge.stack import begun, judge
from ktfleet.judge.stack.packages import ONE_OF
from ktfleet.measure.stack_record import Record
from ktfleet.verdict import Verdict

FIXTURE = Path(__file__).parents[2] / "fixtures" / "stack" / "no_avx512.json"
REAL: dict[str, Any] = json.loads(FIXTURE.read_text())
NO_CARD = parse({"gpu": None}, "test")
HERE = parse({"gpu": None, "stack": {"cpu_variant": "avx2"}}, "test")
CARD = parse({"stack": {"cpu_variant": "avx2"}}, "test")
ENDED = {"seconds": 2.0, "limit_s": 180, "exit": 0, "signal": None, "said": ""}
ON_THE_CARD = {
    "torch": {**ENDED, "values": {
        "name": "NVIDIA GeForce RTX 5090", "capability": [12, 0], "error": 0.002,
        "architectures": ["sm_70", "sm_80", "sm_90", "sm_100", "sm_120"],
    }},
    "sgl_kernel": {**ENDED, "values": {"error": 0.003}},
    "triton": {**ENDED, "values": {"wrong": 0}},
    "fp8_gemm": {**ENDED, "seconds": 140.0, "values": {"jobs": 10}},
}  # fmt: skip
SERVING = {**REAL, "gpu": True, "proofs": {**REAL["proofs"], **ON_THE_CARD}}


def judged(data: dict[str, Any], config: Workstation = HERE) -> dict[str, Verdict]:
    verdicts = judge(config, Record.model_validate(data))
    by_key = {verdict.key: verdict for verdict in verdicts}
    assert len(by_key) == len(verdicts)
    return by_key


def bad(data: dict[str, Any], config: Workstation = HERE) -> dict[str, str]:
    return {key: verdict.result for key, verdict in judged(data, config).items() if not verdict.good}


def changed(*path: str, to: Any, of: dict[str, Any] = SERVING) -> dict[str, Any]:
    """A measurement with one other value."""
    data = copy.deepcopy(of)
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return data


def ended(name: str, said: str = "", code: int | None = 1, signal: str | None = None) -> dict[str, Any]:
    """A measurement with one proof that did not come to its end."""
    return changed("proofs", name, to={**ENDED, "exit": code, "signal": signal, "values": None, "said": said})


def test_the_real_environment_has_another_variant_than_a_skylake() -> None:
    assert bad(REAL, NO_CARD) == {"kt_kernel variant": "fail"}
    line = str(judged(REAL, NO_CARD)["kt_kernel variant"])
    assert line.startswith("kt_kernel variant: seen avx2, wanted avx512_base; ")


def test_the_real_environment_is_good_where_its_variant_is_wanted() -> None:
    results = {key: verdict.result for key, verdict in judged(REAL).items()}
    assert results.pop("stack on the card") == "skipped"
    assert set(results.values()) == {"pass"}
    assert len(results) == 8


def test_a_host_with_a_card_is_good_with_all_proofs() -> None:
    assert {verdict.result for verdict in judged(SERVING, CARD).values()} == {"pass"}


def test_a_card_that_was_not_asked_is_no_pass() -> None:
    assert bad(REAL, CARD) == {"stack on the card": "inconclusive"}


def test_without_an_environment_in_the_configuration_nothing_is_judged() -> None:
    (verdict,) = judge(parse({"stack": None}, "test"), Record.model_validate(REAL))
    assert verdict.result == "skipped"


def test_without_a_measurement_nothing_passes() -> None:
    assert [verdict.result for verdict in (*judge(HERE, None), *begun())] == ["inconclusive"] * 2


@pytest.mark.parametrize(("installed", "said"), [
    ({"torch": ["2.12.0"]}, "torch 2.12.0 (locked: 2.9.1)"),
    ({"torch": ["2.12.0", "2.9.1"]}, "torch 2.12.0 and 2.9.1 (locked: 2.9.1)"),
    ({"torch": []}, "torch missing (locked: 2.9.1)"),
    ({"vllm": ["0.9"]}, "vllm 0.9 (locked: not at all)"),
])  # fmt: skip
def test_every_difference_from_the_lock_is_told(installed: dict[str, list[str]], said: str) -> None:
    data = changed("installed", to={**REAL["installed"], **installed, "numpy": ["1.26.4"]})
    verdict = judged(data)["stack packages"]
    assert verdict.result == "fail"
    assert said in verdict.seen
    assert "numpy 1.26.4" in verdict.seen
    assert "/opt/ktfleet/stack" in verdict.do


@given(st.sets(st.sampled_from(sorted(REAL["locked"])), min_size=1, max_size=5))
def test_no_missing_package_passes(missing: set[str]) -> None:
    data = {**REAL, "installed": {name: each for name, each in REAL["installed"].items() if name not in missing}}
    seen = judged(data)["stack packages"]
    assert seen.result == "fail"
    assert all(f"{name} missing" in seen.seen for name in missing)


def test_an_empty_lock_proves_nothing() -> None:
    data = {**REAL, "locked": {}, "installed": {}, "proofs": {}}
    assert bad(data) == {"stack packages": "inconclusive"}


@pytest.mark.parametrize("name", sorted(ONE_OF))
def test_packages_that_own_one_module_do_not_stay_together(name: str) -> None:
    data = changed("installed", to={**REAL["installed"], name: ["5.0"]})
    assert f"{name} beside {ONE_OF[name]}" in judged(data)["stack conflicts"].seen
    assert bad(data) == {"stack packages": "fail", "stack conflicts": "fail"}
    both = {**data, "locked": {**REAL["locked"], name: "5.0"}}
    assert bad(both) == {"stack conflicts": "fail"}, "even a lock that names both"


def test_damaged_files_are_told() -> None:
    data = changed("damaged", to={"torch": "torch/__init__.py: no such file or directory"})
    assert bad(data) == {"stack files": "fail"}


@pytest.mark.parametrize("cubin", [["0.6.12"], []])
def test_flashinfer_is_of_one_version(cubin: list[str]) -> None:
    data = changed("installed", "flashinfer-cubin", to=cubin)
    assert judged(data)["flashinfer"].result == "fail"


@pytest.mark.parametrize(("name", "said", "signal", "key", "seen", "do"), [
    ("kt_kernel", "", "SIGILL", "kt_kernel variant", "SIGILL", "KT_KERNEL_CPU_VARIANT"),
    ("tilelang", "what():  TypeAttr `__ffi_repr__` is already registered for type index 130.", "SIGABRT",
     "tilelang", "SIGABRT: 'what(): TypeAttr `__ffi_repr__`", "exactly the lock"),
    ("server", "TypeError: non-default argument 'quantization_config' follows default argument", None,
     "server import", "exit 1: 'TypeError", "transformers"),
    ("payload", "OSError: No writable sgl-kernel-kt payload cache: /x: insufficient free space", None,
     "sgl_kernel payload", "No writable", "free some"),
    ("fp8_gemm", "ninja: subcommand failed\nnvcc error: 'cicc' died with status 137", None,
     "FP8 product", "status 137", "MAX_JOBS"),
    ("sgl_kernel", "- ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", None,
     "sgl_kernel on the card", "libcuda.so.1", "checks/gpu.py"),
    ("triton", "something unheard of", None, "Triton on the card", "exit 1: 'something unheard of'", "own Python"),
    ("torch", "", None, "torch on the card", "exit 1, no word", "own Python"),
])  # fmt: skip
def test_a_proof_that_failed_says_how_and_what_to_do(
    name: str, said: str, signal: str | None, key: str, seen: str, do: str
) -> None:
    data = ended(name, said, None if signal else 1, signal)
    assert bad(data, CARD) == {key: "fail"}
    verdict = judged(data, CARD)[key]
    assert seen in verdict.seen
    assert do in verdict.do
    assert "\n" not in str(verdict)


@pytest.mark.parametrize("name", sorted(SERVING["proofs"]))
def test_a_proof_that_hung_or_died_after_its_answer_is_no_pass(name: str) -> None:
    hung = ended(name, code=None)
    (result,) = bad(hung, CARD).items()
    assert result[1] == "fail"
    assert "no end within 180 s" in judged(hung, CARD)[result[0]].seen
    died = changed("proofs", name, to={**SERVING["proofs"][name], "exit": None, "signal": "SIGSEGV"})
    assert set(bad(died, CARD).values()) == {"fail"}


@pytest.mark.parametrize(("path", "to", "key"), [
    (("torch", "values", "capability"), [8, 9], "torch capability"),
    (("torch", "values", "architectures"), ["sm_80", "sm_90"], "torch architectures"),
    (("torch", "values", "error"), 0.5, "torch on the card"),
    (("torch", "values", "error"), float("nan"), "torch on the card"),
    (("sgl_kernel", "values", "error"), float("nan"), "sgl_kernel on the card"),
    (("triton", "values", "wrong"), 3, "Triton on the card"),
])  # fmt: skip
def test_a_card_that_is_another_or_computes_wrong_fails(path: tuple[str, ...], to: Any, key: str) -> None:
    assert bad(changed("proofs", *path, to=to), CARD) == {key: "fail"}


def test_what_the_lock_has_not_is_skipped_and_says_so() -> None:
    lock = {"numpy": "2.0"}
    data = {**REAL, "gpu": True, "locked": lock, "installed": {"numpy": ["2.0"]}, "proofs": {}}
    verdicts = judged(data, CARD)
    assert bad(data, CARD) == {}
    assert verdicts["kt_kernel variant"].result == "skipped"
    assert {each.result for key, each in verdicts.items() if "stack" not in key} == {"skipped"}


def test_another_card_than_the_consumer_blackwell_needs_no_fp8_build() -> None:
    hopper = parse({"gpu": {"capability": [9, 0]}, "stack": {"cpu_variant": "avx2"}}, "test")
    data = ended("fp8_gemm", "RuntimeError: fp8_blockwise_scaled_mm JIT kernel requires SM120 (Blackwell).")
    assert judged(data, hopper)["FP8 product"].result == "skipped"


@pytest.mark.parametrize(("proofs", "gpu", "wanted"), [
    ({"overlay": {**ENDED, "values": {"asked": "MXFP4"}}}, False, ["pass", "skipped"]),
    ({"overlay": {**ENDED, "values": {"asked": "MXFP4"}}, "hooks": {**ENDED, "values": {}}}, True, ["pass", "pass"]),
    ({"overlay": {**ENDED, "exit": 1, "values": None, "said": "ktfleet overlay: x: seen 1, wanted 2; do it"}}, False,
     ["fail", "skipped"]),
    ({"hooks": {**ENDED, "exit": 1, "values": None}}, True, ["skipped", "fail"]),
])  # fmt: skip
def test_the_overlay_is_judged_where_a_recipe_needs_one(proofs: dict[str, Any], gpu: bool, wanted: list[str]) -> None:
    record = Record.model_validate({**REAL, "gpu": gpu, "proofs": {**REAL["proofs"], **proofs}})
    found = {verdict.key: verdict.result for verdict in judge(HERE, record, overlay=True)}
    assert [found["overlay"], found["overlay's hooks"]] == wanted
    assert not {"overlay", "overlay's hooks"} & {verdict.key for verdict in judge(HERE, record)}
