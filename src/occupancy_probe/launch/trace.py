"""Run a study's launches without compiling or launching anything, and note what would be compiled.

Triton's own binder decides the specialization (types, constants, divisibility), so no signature is
ever written by hand; `jit_cache_hook` reports it and stops before the compiler.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime.jit import JITFunction

from occupancy_probe.gpu import Target
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.records import Call, Specialization


@contextmanager
def recording(target: Target, folder: Path) -> Iterator[list[tuple[Specialization, Call]]]:
    """Inside, every kernel launch is noted for ``target`` and neither compiled nor run."""
    noted: list[tuple[Specialization, Call]] = []
    original = JITFunction.run

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        options = {
            k: v for k, v in kwargs.items() if k not in self.arg_names or k in _LAUNCH_OPTIONS
        }
        seen: list[dict[str, Any]] = []

        def hook(**event: Any) -> bool:
            seen.append(event["compile"])
            return True

        before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, hook
        try:
            original(self, *args, grid=grid, warmup=True, **kwargs)
        finally:
            knobs.runtime.jit_cache_hook = before
        spec = _specialization(self, seen[-1], options, folder)
        noted.append((spec, _call(self, spec.key, grid, args, kwargs)))

    JITFunction.run = run
    try:
        with compile_only(target):
            yield noted
    finally:
        JITFunction.run = original


_LAUNCH_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
"""Options even where a kernel also takes them as arguments."""


def _specialization(
    function: JITFunction, compile_event: dict[str, Any], options: dict[str, Any], folder: Path
) -> Specialization:
    source = Path(inspect.getsourcefile(function.fn) or "").resolve()
    folder = folder.resolve()
    file = source.relative_to(folder).as_posix() if source.is_relative_to(folder) else str(source)
    return Specialization(
        file=file,
        kernel=function.fn.__name__,
        signature={k: _encode(v) for k, v in compile_event["signature"].items()},
        constants=[(list(p), _encode(v)) for p, v in compile_event["constants"].items()],
        attributes=[(list(p), _encode(v)) for p, v in compile_event["configs"][0].items()],
        options={k: _encode(v) for k, v in options.items()},
    )


def _call(
    function: JITFunction, key: str, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call:
    named = {k: v for k, v in kwargs.items() if k in function.arg_names}
    bound = function.signature.bind_partial(*args, **named)
    bound.apply_defaults()
    values = dict(bound.arguments)
    if callable(grid):
        grid = grid({**values, **kwargs})
    return Call(
        specialization=key,
        grid=[int(n) for n in grid],
        scalars={k: v for k, v in values.items() if v is None or isinstance(v, (int, float, str))},
        dtypes={k: str(v.dtype) for k, v in values.items() if hasattr(v, "dtype")},
    )


def _encode(value: Any) -> Any:
    """JSON form of what a specialization may hold; the inverse is in :mod:`.compile`."""
    if isinstance(value, triton.language.constexpr):
        return _encode(value.value)
    if isinstance(value, triton.language.dtype):
        return {"dtype": str(value)}
    if isinstance(value, JITFunction):
        return {"jit": value.fn.__name__, "file": inspect.getsourcefile(value.fn)}
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    return value
