"""The server's whole environment. Nothing is inherited: a stray variable of another model or method crashes the start
(ktransformers #2025, #1998), and so does a missing one."""

from __future__ import annotations

from ktfleet.config import Gpu, Workstation
from ktfleet.host.state import HostState
from ktfleet.measure.expert_layer import BINDING
from ktfleet.plan.account import HOME
from ktfleet.plan.cores import Cores
from ktfleet.plan.memory import Memory
from ktfleet.plan.overlay.wanted import VARIABLE, overlay
from ktfleet.plan.places import STACK_PYTHON
from ktfleet.plan.row import Setting
from ktfleet.plan.settings import GLIBC_TUNABLES
from ktfleet.recipes import GIB, Recipe

UNSET = ("SGLANG_", "SGL_", "KT_", "KTFLEET_", "NCCL_", "OMP_", "GOMP_", "KMP_", "MKL_", "CUDA_", "NVIDIA_", "TORCH_",
         "PYTORCH_", "TRITON_", "FLASHINFER_", "HF_", "TRANSFORMERS_", "PYTHON", "LD_", "GLIBC_", "HWLOC_")  # fmt: skip
"""Beginnings of names that change what the server does: to be unset where the environment cannot be emptied."""

OWNED = frozenset({"HOME", "LANG", "PATH", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "HF_HUB_OFFLINE", "CUDA_HOME",
                   "TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_WORKSPACE_BASE", "MAX_JOBS",
                   GLIBC_TUNABLES, *BINDING, "SGLANG_EXTERNAL_MODEL_PACKAGE", "PYTHONPATH", VARIABLE})  # fmt: skip
"""Variables that follow from plan and configuration: a recipe must not give them a second time."""

_COMPILER_GIB, _KEPT_FREE_GIB = 8, 16
"""Memory of one nvcc at its peak, and what is left beside all of them (reports of nvcc killed for memory)."""


def environment(
    state: HostState,
    config: Workstation,
    recipe: Recipe,
    division: Cores,
    need: Memory,
    settings: tuple[Setting, ...],
) -> dict[str, str]:
    """Every variable that the server gets."""
    loaded = overlay(recipe)
    return {
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "PATH": _path(config.gpu),
        # What a person installed for that user must not come before the locked stack.
        "PYTHONNOUSERSITE": "1",
        # The journal shows the progress of the start.
        "PYTHONUNBUFFERED": "1",
        # Everything was fetched and proven before; nothing is fetched while it serves.
        "HF_HUB_OFFLINE": "1",
        **_compiling(state, config.gpu, division, need),
        **{setting.key: setting.wanted for setting in settings if setting.key == GLIBC_TUNABLES},
        **BINDING,
        **_method(recipe),
        **(loaded.environment if loaded else {}),
        **recipe.environment,
    }


def _path(card: Gpu | None) -> str:
    toolkit = (f"{card.toolkit_folder}/bin",) if card else ()
    return ":".join((STACK_PYTHON.rpartition("/")[0], *toolkit, "/usr/local/bin", "/usr/bin", "/bin"))


def _compiling(state: HostState, card: Gpu | None, division: Cores, need: Memory) -> dict[str, str]:
    """For what is compiled at its first use."""
    if card is None:
        return {}
    major, minor = card.capability
    return {
        "CUDA_HOME": card.toolkit_folder,
        "TORCH_CUDA_ARCH_LIST": f"{major}.{minor}+PTX",
        # flashinfer takes it as it is: without the letter it builds for another chip.
        "FLASHINFER_CUDA_ARCH_LIST": f"{major}.{minor}{card.architecture.removeprefix(f'{major}{minor}')}",
        "FLASHINFER_WORKSPACE_BASE": HOME,
        "MAX_JOBS": str(_jobs(state, division, need)),
    }


def _jobs(state: HostState, division: Cores, need: Memory) -> int:
    """Compilers at a time, beside the loaded weights."""
    free = sum((node.mem_total or 0) - need.shard_bytes for node in state.nodes)
    return max(1, min(len(division.other_cpus), (free // GIB - _KEPT_FREE_GIB) // _COMPILER_GIB))


def _method(recipe: Recipe) -> dict[str, str]:
    """int4 on the CPUs beside experts on the GPU: else sglang-kt 0.7.2 stops at a hidden size mismatch."""
    both = recipe.method == "AMXINT4" and recipe.offload.gpu_experts
    return {"SGLANG_V4_USE_TRITON_KERNELS": "1"} if both else {}
