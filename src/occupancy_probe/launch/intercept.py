"""Stand between a program and Triton's launches: one place where ``run`` of its classes is replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Run = Callable[..., Any]


class Interceptor:
    """Sees every launch; a method calls ``proceed`` with the arguments that are to be used.

    A launch passes the layers of a kernel's stack from outside in (:meth:`guess` for heuristics,
    :meth:`tune` for autotuners, in whatever order they stand) and ends in :meth:`launch`.
    """

    def guess(self, layer: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        return proceed(*args, **kwargs)

    def tune(self, tuner: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        return proceed(*args, **kwargs)

    def launch(self, kernel: Any, proceed: Run, *args: Any, **kwargs: Any) -> Any:
        return proceed(*args, **kwargs)


_active: list[Interceptor] = []
_originals: dict[type, Run] = {}


@contextmanager
def intercepting(interceptor: Interceptor) -> Iterator[None]:
    """Inside, ``interceptor`` sees every launch of this process, ahead of those that were there."""
    install(interceptor)
    try:
        yield
    finally:
        remove(interceptor)


def install(interceptor: Interceptor) -> None:
    """Let ``interceptor`` see launches from now on."""
    if not _active:
        for kind, method in _classes():
            _originals[kind] = kind.run  # type: ignore[attr-defined]
            kind.run = _replacement(kind.run, method)  # type: ignore[attr-defined]
    _active.append(interceptor)


def remove(interceptor: Interceptor) -> None:
    """The opposite of :func:`install`; with the last one Triton's classes are as they were."""
    _active.remove(interceptor)
    if not _active:
        for kind, original in _originals.items():
            kind.run = original  # type: ignore[attr-defined]
        _originals.clear()


def _classes() -> list[tuple[type, str]]:
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    return [
        (Heuristics, "guess"),
        (Autotuner, "tune"),
        (JITFunction, "launch"),
        (InterpretedFunction, "launch"),
    ]


def _replacement(original: Run, method: str) -> Run:
    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        proceed = functools.partial(original, self)
        for interceptor in _active:
            proceed = functools.partial(getattr(interceptor, method), self, proceed)
        return proceed(*args, **kwargs)

    return run
