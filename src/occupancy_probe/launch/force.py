"""Run a kernel under one given config, whatever autotuner or heuristics stand around it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def unwrap(kernel: Any) -> Any:
    """The JITFunction under any stack of autotuners, heuristics and library wrappers."""
    while hasattr(kernel, "fn") and hasattr(kernel.fn, "fn"):
        kernel = kernel.fn
    return kernel


class Forced:
    """A kernel with its config fixed: ``Forced(kernel, config)[grid](*args, **kwargs)``."""

    def __init__(self, kernel: Any, config: Mapping[str, Any]) -> None:
        self._launchable = _without_autotuner(kernel)
        self._config = dict(config)

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            return self._launchable[grid](*args, **kwargs, **self._config)

        return launch


def forced(kernel: Any, config: Mapping[str, Any]) -> Forced:
    """``kernel`` with ``config`` in place of its autotuner's choice; heuristics still apply.

    config: meta-parameters and launch options (``num_warps``, ``num_stages`` …) by name.
    """
    return Forced(kernel, config)


def _without_autotuner(kernel: Any) -> Any:
    """``kernel`` with every autotuner left out of its stack; other layers are copied where needed."""
    if hasattr(kernel, "configs") and hasattr(kernel, "keys"):
        return _without_autotuner(kernel.fn)
    if not hasattr(getattr(kernel, "fn", None), "fn"):  # the JITFunction, over a plain function
        return kernel
    inner = _without_autotuner(kernel.fn)
    if inner is kernel.fn:
        return kernel
    layer = copy.copy(kernel)
    layer.fn = inner
    return layer
