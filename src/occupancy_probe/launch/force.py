"""Run a kernel under one given config, whatever autotuner or heuristics stand around it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from occupancy_probe.exc import ForceError
from occupancy_probe.launch.tuned import through
from occupancy_probe.launch.unwrap import is_kernel, launchable, layers, unwrap

__all__ = ["Forced", "forced", "pre_hook", "unwrap"]


class Forced:
    """A kernel with its config fixed: ``Forced(kernel, config)[grid](*args, **kwargs)``."""

    def __init__(self, kernel: Any, config: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._launchable = _without_autotuner(kernel)
        self._names = unwrap(kernel).arg_names
        self._hook = pre_hook(kernel, config)
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
    still apply, and so does the ``pre_hook`` that the autotuner has for this config, or that all of its
    configs share (it sets the block shape of tensor descriptors, or clears an output); wrappers of
    libraries are left out.
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


def pre_hook(kernel: Any, config: Mapping[str, Any]) -> Callable[[dict[str, Any]], Any] | None:
    """The hook that the autotuners' configs have where they agree with ``config``, or all have.

    ForceError if there are several: which one a config of none of the lists needs is not known.
    """
    known = [c for layer in layers(kernel) if _is_autotuner(layer) for c in layer.configs]
    agreeing = [c for c in known if all(config.get(k, v) == v for k, v in c.all_kwargs().items())]
    hooks = {_code(c.pre_hook): c.pre_hook for c in agreeing or known}
    if len(hooks) > 1:
        raise ForceError(
            f"{unwrap(kernel).__name__}: the autotuner's configs have several pre_hooks and"
            f" {json.dumps(dict(config))} is none of them; force one of its configs"
        )
    return next(iter(hooks.values()), None)


def _code(hook: Any) -> Any:
    """What tells two hooks apart: a lambda in a loop is made anew for every config."""
    plain = getattr(hook, "__closure__", True) is None and not hook.__defaults__
    return hook.__code__ if plain else hook
