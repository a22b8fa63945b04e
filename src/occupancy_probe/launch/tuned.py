"""Let a Problem's launch go through the kernel's own autotuner instead of a forced config."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from occupancy_probe.launch.unwrap import layers, unwrap
from occupancy_probe.launch_options import CONFIG_OPTIONS

_tuning: ContextVar[Any] = ContextVar("tuning", default=None)


@contextmanager
def autotuned(kernel: Any = None) -> Iterator[None]:
    """Inside, :func:`.force.forced` forces nothing: the launch goes through the kernel's autotuner.

    kernel: launched in place of the one of that name that ``forced`` is given, e.g. the object that
    a running program holds. Parameters that neither autotuner nor heuristic sets are still taken
    from the config.
    """
    token = _tuning.set(True if kernel is None else kernel)
    try:
        yield
    finally:
        _tuning.reset(token)


def through(kernel: Any, config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """What to launch with which parameters inside :func:`autotuned`; None outside of it."""
    given = _tuning.get()
    if given is None or not autotuners(kernel):
        return None
    same = given is not True and unwrap(given).__name__ == unwrap(kernel).__name__
    chosen = given if same else kernel
    set_by_others = set(CONFIG_OPTIONS)
    for tuner in autotuners(chosen):
        set_by_others.update(*(c.kwargs for c in tuner.configs))
    for layer in heuristics(chosen):
        set_by_others.update(layer.values)
    return chosen, {k: v for k, v in config.items() if k not in set_by_others}


def autotuners(kernel: Any) -> list[Any]:
    """The autotuners in the stack of ``kernel``, from outside in."""
    return [
        layer for layer in layers(kernel) if hasattr(layer, "configs") and hasattr(layer, "keys")
    ]


def heuristics(kernel: Any) -> list[Any]:
    """The heuristics in the stack of ``kernel``, from outside in."""
    return [layer for layer in layers(kernel) if isinstance(getattr(layer, "values", None), dict)]


def constexprs(function: Any) -> list[str]:
    """Names of the compile-time parameters of a JIT or interpreted function."""
    parameters = inspect.signature(function.fn).parameters.items()
    return [n for n, p in parameters if "constexpr" in str(p.annotation)]
