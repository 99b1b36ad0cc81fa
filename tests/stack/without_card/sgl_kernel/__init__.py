"""A stand-in for sgl_kernel where there is no card: every name is there and raises when it is called.

sglang's layers then take their paths of plain torch. The real one cannot even be imported without NVIDIA's driver. This
folder is put on PYTHONPATH by tests/stack/test_rate.py; HTTP, scheduler, tokenizer and metrics stay sglang-kt's own.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

torch.cuda.get_device_capability = lambda *_: (0, 0)  # sglang asks for it while it is imported


class Missing:
    """Anything of sgl_kernel: it may be named, not called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __getattr__(self, name: str) -> Missing:
        return named(name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{self.__name__} needs a card")


def named(name: str) -> Missing:
    """A stand-in for a name that Python itself does not ask for."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Missing(name)


class StandIn(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> Missing:
        return named(name)


class Submodules(MetaPathFinder, Loader):
    """Every submodule is there, too."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


sys.meta_path.insert(0, Submodules())
sys.modules[__name__].__class__ = StandIn
