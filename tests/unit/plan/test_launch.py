"""The exact start of every recipe: what is there, what must not be. Golden: tests/golden/launch (KTFLEET_GOLDEN=1)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from difflib import unified_diff
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given

from ktfleet import plan, recipes
from ktfleet.config import Data, Gpu, Hugepages, Key, Server, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import launch
from ktfleet.plan.catalogue import catalogue
from ktfleet.plan.environment import OWNED, UNSET
from ktfleet.plan.overlay import wanted as overlay
from tests.states import hosts, workstation
from tests.trees import Numbering

GOLDEN = Path(__file__).parents[2] / "golden" / "launch"
TOPOLOGIES = {
    f"{numbering}{'' if threads == 2 else '-no-ht'}": workstation(numbering=numbering, threads=threads)
    for numbering in get_args(Numbering)
    for threads in (2, 1)
}


def made(state: HostState | None = None, **config: Any) -> plan.Plan:
    wanted = Workstation(**config)
    recipe = recipes.load(wanted.recipe, wanted.override, "ws01")
    return plan.make(state or workstation(), wanted, recipe)


def start(state: HostState | None = None, **config: Any) -> launch.Launch:
    found = made(state, **config)
    assert found.refusals == ()
    return found.launch


def flags(found: launch.Launch) -> dict[str, str | None]:
    """flag -> its values; None: it takes none."""
    words = [*found.argv[3:], "--"]
    at = [index for index, word in enumerate(words) if word.startswith("--")]
    return {words[here].removeprefix("--"): " ".join(words[here + 1 : end]) or None for here, end in pairwise(at)}


@pytest.mark.parametrize("name", recipes.names())
def test_each_recipe_starts_as_its_golden_files_show(name: str) -> None:
    """NAME.sh on the first topology, whole; NAME.diff: what the other ones change in it, and nothing else."""
    starts = {
        topology: start(state, recipe=name).shell().replace(overlay.folder(), "/opt/ktfleet/own/HASH").splitlines()
        for topology, state in TOPOLOGIES.items()
    }
    first, *others = starts
    changes = [
        line.rstrip()
        for topology in others
        for line in unified_diff(starts[first], starts[topology], first, topology, n=0, lineterm="")
    ]
    texts = {f"{name}.sh": "\n".join(starts[first]), f"{name}.diff": "\n".join(changes)}
    if os.environ.get("KTFLEET_GOLDEN"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (GOLDEN / file).write_text(text + "\n")
    assert {file: (GOLDEN / file).read_text() for file in texts} == {file: f"{text}\n" for file, text in texts.items()}


def test_no_golden_file_is_left_over() -> None:
    wanted = {f"{name}{suffix}" for name in recipes.names() for suffix in (".sh", ".diff")}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", recipes.names())
def test_what_must_not_be_there_is_not(name: str, topology: str) -> None:
    found = start(TOPOLOGIES[topology], recipe=name)
    never = {"api-key", "admin-api-key", "config", "numa-node", "kt-gpu-experts-ratio", "json-model-override-args",
             "record-kt-gpu-expert-distribution", "kt-gpu-prefill-token-threshold", "kt-enable-dynamic-expert-update",
             "init-expert-location"}  # fmt: skip
    assert not never & set(flags(found))
    words = " ".join((*found.argv, *found.environment))
    assert not any(word in words for word in ("numactl", "interleave", "membind", "None", "taskset"))
    assert not [name for name in found.environment if name.startswith(("KT_", "NCCL_", "OMP_", "LD_", "GLIBC_"))]
    assert all(value and "\n" not in value for value in found.environment.values())


@pytest.mark.parametrize("name", recipes.names())
def test_what_must_be_there_is(name: str) -> None:
    given = flags(start(recipe=name))
    recipe = recipes.load(name)
    assert (given["kt-cpuinfer"], given["kt-threadpool-count"], given["kt-numa-nodes"]) == ("40", "2", "0 1")
    assert given["kt-method"] == recipe.method
    assert given["kt-num-gpu-experts"] == str(recipe.offload.gpu_experts), "without it every expert lies on the GPU"
    assert given["host"] == "127.0.0.1"
    assert {"chunked-prefill-size", "max-total-tokens"} <= set(given), "only together do long prompts not hang"
    assert ("speculative-algorithm" in given) == (name == "dsv4-flash-mxfp4-eagle")
    assert ("kt-max-deferred-experts-per-token" in given) == (recipe.offload.deferred > 0)
    assert ("kt-expert-placement-strategy" in given) == (recipe.offload.gpu_experts > 0)
    assert ("attention-backend" in given) == (recipe.model != "DeepSeek-V4-Flash"), "0.7.2 takes its own for V4"
    dsv4 = {"SGLANG_DSV4_MODE", "SGLANG_DSV4_2604_SUBMODE"} & set(start(recipe=name).environment)
    assert len(dsv4) == (2 if recipe.model == "DeepSeek-V4-Flash" else 0), "a stray one crashes another model's start"


@pytest.mark.parametrize(("name", "asked"), [
    ("dsv4-flash-amxint4", {"method": "AMXINT4", "clamp": 10.0, "top_k": 6}),
    ("dsv4-flash-amxint4-top4", {"method": "AMXINT4", "clamp": 10.0, "top_k": 4}),
    ("dsv4-flash-mxfp4", None),
    ("dsv4-flash-mxfp4-top4", {"method": "MXFP4", "top_k": 4}),
    ("dsv4-flash-mxfp4-eagle", None),
    ("qwen3-30b-a3b-bf16", None),
])  # fmt: skip
def test_the_overlay_is_asked_for_what_the_recipe_needs_of_it(name: str, asked: dict[str, object] | None) -> None:
    environment = start(recipe=name).environment
    assert ("SGLANG_EXTERNAL_MODEL_PACKAGE" in environment) == ("PYTHONPATH" in environment) == (asked is not None)
    always = {"layers": 43, "experts": 256, "per_token": 6, "status": "/run/ktfleet-server/overlay.json"}
    assert json.loads(environment.get("KTFLEET_OVERLAY", "null")) == (asked and {**always, **asked})


def test_without_the_clamp_the_overlay_is_not_asked_for_it() -> None:
    found = start(override={"offload": {"clamp": False}}, accept={"clamp": "to see what it does"})
    assert "KTFLEET_OVERLAY" not in found.environment


def test_experts_on_both_sides_of_int4_get_the_kernels_that_take_them() -> None:
    reason = {"gpu_experts": "to compare"}
    found = start(override={"offload": {"gpu_experts": 8}}, accept=reason)
    assert found.environment["SGLANG_V4_USE_TRITON_KERNELS"] == "1"
    for name in recipes.names():
        assert "SGLANG_V4_USE_TRITON_KERNELS" not in start(recipe=name).environment


def test_the_card_decides_what_is_compiled() -> None:
    environment = start().environment
    assert environment["CUDA_HOME"] == "/usr/local/cuda-12.9"
    assert "/usr/local/cuda-12.9/bin" in environment["PATH"].split(":")
    assert environment["FLASHINFER_CUDA_ARCH_LIST"] == "12.0a"
    assert environment["TORCH_CUDA_ARCH_LIST"] == "12.0+PTX"
    old = start(gpu=Gpu(capability=(8, 9))).environment
    assert (old["FLASHINFER_CUDA_ARCH_LIST"], old["TORCH_CUDA_ARCH_LIST"]) == ("8.9", "8.9+PTX")
    none = start(gpu=None).environment
    assert not [name for name in none if "CUDA" in name or "FLASHINFER" in name or name == "MAX_JOBS"]


@pytest.mark.parametrize(("recipe", "node_gib", "jobs"), [
    ("dsv4-flash-amxint4", 126, "13"), ("dsv4-flash-amxint4", 80, "1"), ("qwen3-30b-a3b-bf16", 2000, "40"),
])  # fmt: skip
def test_compilers_leave_room_for_the_weights(recipe: str, node_gib: float, jobs: str) -> None:
    assert start(workstation(node_gib=(node_gib, node_gib)), recipe=recipe).environment["MAX_JOBS"] == jobs


def test_the_tunable_comes_from_the_settings_table() -> None:
    assert start(hugepages=Hugepages(policy="hugetlb")).environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=2"
    for policy in ("thp", "off"):
        assert "GLIBC_TUNABLES" not in start(hugepages=Hugepages(policy=policy)).environment  # type: ignore[arg-type]


def test_folders() -> None:
    int4 = flags(start(data=Data(mount="/data")))
    assert int4["model-path"].startswith("/data/DeepSeek-V4-Flash")  # type: ignore[union-attr]
    assert int4["kt-weight-path"] == f"{int4['model-path']}-AMXINT4-p2"
    native = flags(start(recipe="dsv4-flash-mxfp4"))
    assert native["kt-weight-path"] == native["model-path"]


def test_where_it_listens() -> None:
    assert flags(start(server=Server(port=8080)))["port"] == "8080"
    assert flags(start(server=Server(host="::1")))["host"] == "::1"
    public = start(server=Server(host="0.0.0.0", key=Key(file="/root/key")))
    assert (flags(public)["host"], flags(public)["port"]) == ("127.0.0.1", "30001"), (
        "sglang shows its key: it stays behind what asks for it"
    )
    assert "/root/key" not in (*public.argv, *public.environment.values())


@pytest.mark.parametrize(("given", "line"), [
    ({"enable-metricss": True}, "dsv4-flash-amxint4: --enable-metricss: seen an unknown flag, wanted one of sglang-kt "
                                "0.7.2; did you mean 'enable-metrics'?"),
    ({"kt-cpuinfer": 80}, "dsv4-flash-amxint4: flags.kt-cpuinfer: seen a flag that has its own key, wanted "
                          "offload.cpuinfer; set offload.cpuinfer instead"),
    ({"kt-gpu-experts-ratio": 0.1}, "set offload.gpu_experts instead"),
    ({"model": "/m"}, "set data.mount instead"),
    ({"api-key": "s3cret"}, "set server.key instead"),
    ({"config": "/etc/x.yaml"}, "set the recipe's own keys instead"),
    ({"extra-metric-labels": "x"}, "wanted a table; correct it"),
    ({"watchdog-timeout": float("inf")}, "--watchdog-timeout: seen inf, wanted a number; correct it"),
    ({"cuda-graph-bs": 1}, "dsv4-flash-amxint4: --cuda-graph-bs: seen 1, wanted a list of integers; correct it"),
    ({"chunked-prefil-size": 1}, "did you mean 'chunked-prefill-size'?"),
])  # fmt: skip
def test_a_wrong_flag_is_refused_before_anything_starts(given: dict[str, Any], line: str) -> None:
    (problem,) = made(override={"flags": given}).refusals
    assert str(problem).endswith(line)
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize(
    "name", ["PATH", "KTFLEET_OVERLAY", "SGLANG_EXTERNAL_MODEL_PACKAGE", "LD_PRELOAD", "CUDA_HOME"]
)
def test_a_recipe_cannot_give_a_variable_of_the_plan(name: str) -> None:
    """With KTFLEET_OVERLAY of its own it would lose the clamp past the guard rail."""
    assert [str(problem) for problem in made(override={"environment": {name: "{}"}}).refusals] == [
        f"dsv4-flash-amxint4: environment.{name}: seen a variable that follows from the plan, "
        f"wanted none of the recipe's own; remove environment.{name}"
    ]


def test_every_derived_variable_is_owned() -> None:
    found = start(recipe="dsv4-flash-amxint4-top4", hugepages=Hugepages(policy="hugetlb"))
    own = set(recipes.load("dsv4-flash-amxint4-top4").environment)
    assert set(found.environment) - own == OWNED


def test_owned_flags_are_flags_and_their_keys_are_keys() -> None:
    known = {option.name for option in catalogue().options.values()}
    assert set(launch.OWNED) <= known
    models = {"offload": recipes.model.Offload, "context": recipes.model.Context, "api": recipes.model.Api,
              "speculation": recipes.model.Speculation, "server": Server, "data": Data}  # fmt: skip
    for key in launch.OWNED.values():
        table, _, name = key.partition(".")
        assert (
            name in models[table].model_fields
            if name
            else key in (*recipes.Recipe.model_fields, "the recipe's own keys")
        )


@pytest.mark.parametrize("name", recipes.names())
def test_every_derived_flag_is_owned(name: str) -> None:
    """What the plan gives must not be given a second time by a recipe's `flags`."""
    derived = set(flags(start(recipe=name))) - set(recipes.load(name).flags)
    constants = {"watchdog-timeout", "enable-metrics"}
    assert derived - constants <= set(launch.OWNED)


def test_a_table_becomes_json() -> None:
    given = flags(start(override={"flags": {"extra-metric-labels": {"host": "ws01"}}}))
    assert json.loads(given["extra-metric-labels"] or "") == {"host": "ws01"}


def test_a_flag_that_is_not_owned_replaces_the_constant() -> None:
    assert flags(start(override={"flags": {"watchdog-timeout": 3000}}))["watchdog-timeout"] == "3000"
    assert "enable-metrics" not in flags(start(override={"flags": {"enable-metrics": False}}))


@pytest.mark.parametrize("name", recipes.names())
def test_a_shell_takes_it_as_it_stands(name: str, tmp_path: Path) -> None:
    """Run with stand-ins: what arrives is argv and environment, whole, and nothing else."""
    found = start(recipe=name, data=Data(mount='/srv/it\'s $HOME; "models"'))
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\nprintf "\\n"; env -0\n')
    taskset = tmp_path / "taskset"
    taskset.write_text('#!/bin/sh\nshift 2; exec "$@"\n')
    for program in (python, taskset):
        program.chmod(0o755)
    text = found.shell().replace(found.argv[0], shlex.quote(str(python)))
    path = f"{tmp_path}:/usr/bin:/bin"
    inherited = {"PATH": path, "SGLANG_STRAY": "1", "KT_STRAY": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", text], env=inherited, capture_output=True, text=True, check=True)
    words, _, variables = done.stdout.partition("\n")
    assert words.split("\0")[:-1] == list(found.argv[1:])
    seen = dict(each.partition("=")[::2] for each in variables.split("\0") if each)
    assert {name: value for name, value in seen.items() if name not in ("PWD", "SHLVL", "_", "OLDPWD")} == dict(
        found.environment
    )


def test_what_is_unset_covers_what_leaks() -> None:
    for stray in ("SGLANG_DSV4_MODE", "KT_KERNEL_CPU_VARIANT", "NCCL_DEBUG", "OMP_NUM_THREADS", "LD_PRELOAD",
                  "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HF_HOME", "TORCH_CUDA_ARCH_LIST"):  # fmt: skip
        assert stray.startswith(UNSET)


@given(hosts())
def test_workers_and_other_threads_never_share_a_core(state: HostState) -> None:
    """Nor a PU: the others run beside the workers, or on cores that carry none where there is no hyperthread."""
    recipe = recipes.load("qwen3-30b-a3b-bf16")
    found = plan.make(state, Workstation(), recipe)
    workers = set(chain.from_iterable(found.cores.worker_cpus.values()))
    assert not workers & set(found.launch.cpus)
    core_of = {cpu.cpu: cpu.siblings for cpu in state.cpus}
    assert len({core_of[cpu] for cpu in workers}) == len(workers), "one worker a core"
    node_of = {cpu.cpu: cpu.node for cpu in state.cpus}
    for node, cpus in found.cores.worker_cpus.items():
        beside = [cpu for cpu in found.launch.cpus if node_of[cpu] == node]
        assert beside or not cpus, "every node that carries workers keeps a CPU for the others"
        if all(len(core_of[cpu] or ()) == 1 for cpu in core_of if node_of[cpu] == node):
            assert not {core_of[cpu] for cpu in beside} & {core_of[cpu] for cpu in cpus}
    given = flags(found.launch)
    assert given["kt-cpuinfer"] == str(len(workers))
    assert int(given["kt-cpuinfer"] or 0) % int(given["kt-threadpool-count"] or 1) == 0


def test_a_host_that_was_not_read_gets_no_problem_of_the_command_line() -> None:
    found = plan.make(HostState(schema=1), Workstation(), recipes.load("dsv4-flash-amxint4"))
    assert found.launch.problems == ()
    assert "kt-numa-nodes" not in flags(found.launch)
