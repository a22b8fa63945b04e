"""Run a kernel under one given config, whatever autotuner or heuristics stand around it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from occupancy_probe.launch.tuned import through
from occupancy_probe.launch.unwrap import is_kernel, launchable, layers, unwrap

__all__ = ["Forced", "forced", "pre_hook", "unwrap"]


class Forced:
    """A kernel with its config fixed: ``Forced(kernel, config)[grid](*args, **kwargs)``."""

    def __init__(self, kernel: Any, config: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._launchable = _without_autotuner(kernel)
        self._names = unwrap(kernel).arg_names
        self._hook = pre_hook(kernel)
        self._config = dict(config)

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            if (tuned := through(self._kernel, self._config)) is not None:
                kernel, left = tuned
                return kernel[grid](*args, **kwargs, **left)
            if self._hook:
                named = dict(zip(self._names, args, strict=False))
                self._hook({**named, **kwargs, **self._config})
            return self._launchable[grid](*args, **kwargs, **self._config)

        return launch


def forced(kernel: Any, config: Mapping[str, Any]) -> Forced:
    """``kernel`` with ``config`` in place of its autotuner's choice.

    config: meta-parameters and launch options (``num_warps``, ``num_stages`` …) by name. Heuristics
    still apply, and so does a ``pre_hook`` that all of the autotuner's configs share (it sets the
    block shape of tensor descriptors, or clears an output); wrappers of libraries are left out.
    """
    return Forced(kernel, config)


def _is_autotuner(layer: Any) -> bool:
    return hasattr(layer, "configs") and hasattr(layer, "keys")


def _without_autotuner(kernel: Any) -> Any:
    """``kernel`` with every autotuner left out of its stack; other layers are copied where needed."""
    layer = launchable(kernel)
    if is_kernel(layer):
        return layer
    inner = _without_autotuner(layer.fn)
    if _is_autotuner(layer):
        return inner
    if inner is layer.fn:
        return layer
    layer = copy.copy(layer)
    layer.fn = inner
    return layer


def pre_hook(kernel: Any) -> Callable[[dict[str, Any]], Any] | None:
    """The hook that all configs of the kernel's autotuners share; None without one."""
    hooks = {c.pre_hook for layer in layers(kernel) if _is_autotuner(layer) for c in layer.configs}
    return hooks.pop() if len(hooks) == 1 else None
