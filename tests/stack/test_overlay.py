"""The overlay with the server's real packages, as far as a machine without a card can take it."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ktfleet.runtime import pins, settings
from ktfleet.runtime.upstream import PINS
from tests.unit.runtime.test_settings import GOOD
from tests.unit.runtime.test_start import placed

pytestmark = pytest.mark.stack

HERE = Path(__file__).parent
NEAR = 0.01
"""Relative L2: MXFP4's kernel keeps its activations in bf16; 0.0026 was seen."""
DRIVER = "libcuda.so.1"


@pytest.fixture(scope="session")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It, as it lies on a host."""
    return placed(tmp_path_factory.mktemp("overlay"))


def run(python: Path, overlay: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(overlay), "PYTHONPATH": str(overlay), **variables}
    # Python looks for modules in the folder where it is started, first of all.
    return subprocess.run(
        [python, *arguments], capture_output=True, text=True, env=environment, cwd=overlay, check=False
    )


def packages(python: Path) -> dict[str, Path]:
    """Where upstream lies."""
    program = (
        "import json; from ktfleet.runtime import pins; print(json.dumps({n: str(p) for n, p in "
        "pins.folders(frozenset(('sglang', 'kt_kernel'))).items()}))"
    )
    done = run(python, HERE.parents[1], "-c", program)
    assert done.returncode == 0, done.stderr
    return {name: Path(path) for name, path in json.loads(done.stdout).items()}


# --- upstream's text


@pytest.fixture(scope="session")
def upstream(stack_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the files that are pinned."""
    root = tmp_path_factory.mktemp("upstream")
    for package, folder in packages(stack_python).items():
        for file in {pin.file for pin in PINS if pin.package == package}:
            (root / package / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / file, root / package / file)
    return {name: root / name for name in ("sglang", "kt_kernel")}


def test_every_pin_holds(upstream: dict[str, Path]) -> None:
    assert [str(problem) for _, problem in pins.drift(PINS, upstream)] == []


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_a_changed_function_is_found_and_a_comment_is_not(upstream: dict[str, Path], pin: pins.Pin) -> None:
    path = upstream[pin.package] / pin.file
    text = path.read_text()
    node: Any = ast.parse(text)
    for part in pin.name.split("."):
        node = next(each for each in reversed(node.body) if getattr(each, "name", None) == part)
    first = node.body[0]
    lines, indent = text.splitlines(keepends=True), " " * first.col_offset

    def with_line(line: str) -> str:
        # A decorator stands above the line of its function.
        at = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))]) - 1
        at = first.end_lineno if ast.get_docstring(node) is not None else at
        return "".join((*lines[:at], f"{indent}{line}\n", *lines[at:]))

    try:
        path.write_text(with_line("# a comment"))
        assert list(pins.drift(PINS, upstream)) == []
        path.write_text(with_line("pass"))
        found = [each for each, _ in pins.drift(PINS, upstream)]
    finally:
        path.write_text(text)
    assert found == [pin]


# --- the routing


Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def ask(stack_python: Path, overlay: Path) -> Iterator[Ask]:
    """A process of the environment that computes routings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(overlay), "PYTHONPATH": str(overlay)}
    with subprocess.Popen(
        [stack_python, HERE / "routed.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin
        assert process.stdout

        def answer(**asked: Any) -> dict[str, Any]:
            print(json.dumps(asked), file=process.stdin, flush=True)
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        yield answer
        process.stdin.close()


@st.composite
def routings(draw: st.DrawFn, width: int | None = None) -> dict[str, Any]:
    """Some tokens; weights with ties, experts that are absent. Quarters: their sums are exact in any order."""
    wide = width or draw(st.integers(1, 8))
    tokens = draw(st.integers(1, 9))
    row = st.lists(st.integers(0, 12).map(lambda n: n / 4), min_size=wide, max_size=wide)
    places = st.permutations(range(12)).map(lambda order: list(order[:wide]))
    weights = draw(st.lists(row, min_size=tokens, max_size=tokens))
    ids = draw(st.lists(places, min_size=tokens, max_size=tokens))
    absent = draw(st.sets(st.tuples(st.integers(0, tokens - 1), st.integers(0, wide - 1))))
    ids = [[-1 if (t, s) in absent else place for s, place in enumerate(row)] for t, row in enumerate(ids)]
    top_k = draw(st.integers(1, wide))
    least = draw(st.none() | st.integers(1, top_k))
    return {"weights": weights, "ids": ids, "top_k": top_k, "least": least, "share": 0.0 if least is None else 0.25}


MANY = hypothesis_settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(routings())
def test_the_cull_keeps_the_best_and_their_sum(ask: Ask, routing: dict[str, Any]) -> None:
    found = ask(what="cull", **routing)
    for weights, ids, seen, kept in zip(
        routing["weights"], routing["ids"], found["weights"], found["ids"], strict=True
    ):
        there = [slot for slot, place in enumerate(ids) if place >= 0]
        order = sorted(there, key=lambda slot: (-weights[slot], slot))
        total = sum(weights[slot] for slot in there)
        least = routing["top_k"] if routing["least"] is None else routing["least"]
        stay = {slot for rank, slot in enumerate(order[: routing["top_k"]])
                if rank < least or weights[slot] >= routing["share"] * total}  # fmt: skip
        assert kept == [place if slot in stay else -1 for slot, place in enumerate(ids)]
        assert all(seen[slot] == 0 for slot in range(len(ids)) if slot not in stay)
        assert sum(seen) == pytest.approx(total if stay else 0, rel=1e-5)
        left = sum(weights[slot] for slot in stay)
        assert seen == pytest.approx(
            [weights[slot] * (total / left if left else 1) if slot in stay else 0 for slot in range(len(ids))], rel=1e-5
        )
    assert found["counted"] == [
        sum(place >= 0 for row in each for place in row) for each in (routing["ids"], found["ids"])
    ]


@hypothesis_settings(MANY, max_examples=50)
@given(routings(width=6), st.sampled_from([(4, None, 0.0), (4, 2, 0.25)]))
def test_compiled_is_the_same(ask: Ask, routing: dict[str, Any], kind: tuple[int, int | None, float]) -> None:
    found = ask(what="compiled", **{**routing, "top_k": kind[0], "least": kind[1], "share": kind[2]})
    assert found["ids"]
    assert found["off"] < 1e-5


@MANY
@given(routings(), st.integers(-1, 9))
def test_the_deferral_splits_what_is_there(ask: Ask, routing: dict[str, Any], protected: int) -> None:
    found = ask(what="deferral", protected=protected, experts=12, **routing)
    safe = set()
    for weights, ids in zip(routing["weights"], routing["ids"], strict=True):
        order = sorted((slot for slot, place in enumerate(ids) if place >= 0), key=lambda slot: (-weights[slot], slot))
        safe |= {ids[slot] for slot in order[: max(0, protected)]}
    assert found["now"] == [[place if place in safe else -1 for place in row] for row in routing["ids"]]
    assert found["later"] == [[-1 if place in safe else place for place in row] for row in routing["ids"]]


# --- the import, as sglang does it

IMPORT = """
import ast, functools, importlib, inspect, logging, pkgutil, sys
from pathlib import Path
from typing import *
text = (Path(sys.argv[1]) / "srt/models/registry.py").read_text()
(function,) = (n for n in ast.parse(text).body if getattr(n, "name", None) == "import_model_classes")
names = {"importlib": importlib, "pkgutil": pkgutil, "lru_cache": functools.lru_cache, "logger": logging,
         "envs": type("envs", (), {"SGLANG_DISABLED_MODEL_ARCHS": type("none", (), {"get": staticmethod(list)})})}
exec(compile(ast.Module([function], []), "registry.py", "exec"), names)
print(names["import_model_classes"]("ktfleet.runtime"))
"""
"""sglang's own function, without the import of all its models."""


def start(python: Path, overlay: Path, asked: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    variables = {"SGLANG_EXTERNAL_MODEL_PACKAGE": "ktfleet.runtime", settings.VARIABLE: json.dumps(asked)}
    return run(python, overlay, "-c", IMPORT, packages(python)["sglang"], **variables)


@pytest.mark.parametrize("module", ["hooks", "routing", "settings", "status"])
def test_a_broken_module_stops_the_server(stack_python: Path, tmp_path: Path, module: str) -> None:
    """sglang passes over a submodule that cannot be imported; the package does not let it come to that."""
    (placed(tmp_path) / "ktfleet" / "runtime" / f"{module}.py").write_text("import no_such_module\n")
    done = start(stack_python, tmp_path, {**GOOD, "method": "MXFP4"})
    assert (done.returncode, done.stdout) == (1, "")
    lines = [line for line in done.stderr.splitlines() if line.startswith("ktfleet overlay: ")]
    assert "No module named 'no_such_module'" in lines[-1]
    assert ": seen ModuleNotFoundError" in lines[-1]


def test_a_kernel_that_this_cpu_lacks_stops_the_server(stack_python: Path, overlay: Path) -> None:
    if "avx512bw" in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has AMXINT4's kernel")
    done = start(stack_python, overlay, {**GOOD, "clamp": 10.0})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(
        "ktfleet overlay: the self-test of kt-kernel's AMXINT4 kernel: seen exit 1: this CPU has no kernel for it"
    )


# --- the kernels, and the server's path to them


@pytest.mark.parametrize("method", settings.METHODS)
def test_the_kernel_leaves_out_to_the_bit_and_clamps(stack_python: Path, overlay: Path, method: str) -> None:
    if method == "AMXINT4" and "avx512bw" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("AMXINT4's kernel needs AVX-512")
    program = overlay / "ktfleet/runtime/selftest_kernels.py"
    done = run(stack_python, overlay, "-I", program, method, "--limit", "10")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert (done.returncode, json.loads(line)["wrong"]) == (0, []), done.stdout + done.stderr


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory, stack_python: Path) -> Path:
    """The folder of a library in the driver's place: it has every name that sgl_kernel asks for, and no device."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler: seen none, wanted cc, to make a stand-in for the driver")
    program = "import runpy, sys; print(runpy.run_path(sys.argv[1])['prove_payload']()['folder'])"
    from ktfleet.measure import stack

    done = run(stack_python, HERE.parents[1], "-c", program, stack.__file__)
    assert done.returncode == 0, done.stderr
    names = set()
    for library in Path(done.stdout.splitlines()[-1]).rglob("*.so"):
        told = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
        words = (line.split()[-1].partition("@")[0] for line in told.stdout.splitlines())
        names |= {word for word in words if word.startswith("cu") and word[2:3].isupper()}
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cuda.c").write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names)))
    shared = ("-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", "-o", folder / DRIVER)
    subprocess.run(["cc", *shared, folder / "cuda.c"], check=True)
    return folder


@pytest.fixture(scope="session", params=["mxfp4", "int4"])
def layers(
    request: pytest.FixtureRequest, stack_python: Path, overlay: Path, driver: Path, tmp_path_factory: Any
) -> dict[str, Any]:
    """Two layers behind sglang's and kt-kernel's own code: see served.py."""
    folder = tmp_path_factory.mktemp(request.param)
    done = run(stack_python, overlay, HERE / "served.py", request.param, folder, LD_LIBRARY_PATH=str(driver))
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(lines[-1])
    return {**found, "method": request.param}


@pytest.mark.parametrize("tokens", ["1 tokens", "8 tokens"])
def test_decoding_computes_the_kept_experts_with_the_clamp(layers: dict[str, Any], tokens: str) -> None:
    found = layers[tokens]
    assert found["from kept, clamped"] < NEAR
    assert min(found["from kept, free"], found["from all, clamped"]) > 20 * NEAR


def test_a_prompt_keeps_all_its_experts(layers: dict[str, Any]) -> None:
    assert layers["9 tokens"]["from all, clamped"] < NEAR


def test_without_the_overlay_the_clamp_is_lost_and_an_absent_expert_kills(layers: dict[str, Any]) -> None:
    if layers["method"] == "mxfp4":
        pytest.skip("MXFP4 keeps the clamp by itself")
    found = layers["stock"]
    assert found["from all, free"] < NEAR
    assert found["from all, clamped"] > 20 * NEAR
    assert found["deferral of -1"] is not None, "upstream takes -1 now: is the replacement still needed?"


def test_what_is_deferred_comes_one_layer_later(layers: dict[str, Any]) -> None:
    assert layers["deferral"]["sum of both layers"] < NEAR
    assert layers["deferral"]["first layer alone"] > 10 * NEAR


def test_the_card_computes_none_for_an_absent_expert(layers: dict[str, Any]) -> None:
    assert layers["on the card"]["seen"] == layers["on the card"]["wanted"]


def test_the_status_tells_what_ran(layers: dict[str, Any]) -> None:
    told = layers["status"]
    assert "top 4 of 6 experts of a decoded token" in told["file"]["active"]
    assert told["file"]["slots"] == {"0": [90, 60], "1": [18, 12]}
    assert told["file"]["clamped"] == ({"0": 10.0, "1": 10.0} if layers["method"] == "int4" else {})
    assert (told["shape"], told["counted"]) == ([1, 2, 8], 60 + 12 + 54)


def test_a_model_with_another_limit_does_not_load(layers: dict[str, Any]) -> None:
    wanted = "layer 0: the model's SwiGLU limit: seen 7.0, wanted 10.0; " if layers["method"] == "int4" else None
    assert (layers["refused"] or "").startswith(wanted or "")
    assert (layers["refused"] is None) == (wanted is None)
