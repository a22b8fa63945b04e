"""Run a study's launches without compiling or launching anything, and note what would be compiled.

Triton's own binder decides the specialization (types, constants, divisibility), so no signature is
ever written by hand; the step after it, which would compile, is taken out. (`jit_cache_hook` comes
at the same point, but Triton writes JSON for it first and fails on enums and named tuples.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import triton
from triton.runtime.jit import JITFunction

from occupancy_probe.exc import ProblemError
from occupancy_probe.gpu import Target
from occupancy_probe.launch.driver import compile_only
from occupancy_probe.launch.encoding import encode, relative, source_file
from occupancy_probe.launch.load import importable
from occupancy_probe.launch.stubs import Inert
from occupancy_probe.launch.unwrap import names_used
from occupancy_probe.launch_options import LAUNCH_OPTIONS
from occupancy_probe.records import Call, KernelFile, Specialization

Noted = list[tuple[Specialization, Call]]


_TRITON = Path(triton.__file__).resolve().parent


@dataclass(frozen=True)
class Origin:
    """What a compile job needs to find the traced kernels again.

    folder: what file names are relative to. file: how a kernel in somebody else's file is imported.
    kernel: the studied JITFunction, which is noted under the study's name for it.
    """

    folder: Path
    file: KernelFile | None = None
    kernel: Any = None
    sources: dict[Path, None] = field(default_factory=dict)
    """Filled by tracing: files of every launched function and of those it calls."""
    known: dict[int, Any] = field(default_factory=dict)
    """Functions already looked at, by id: most launches are of the same few."""


@dataclass(frozen=True)
class _Bound:
    """What Triton's binder made of one launch."""

    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]


@contextmanager
def recording(target: Target, origin: Origin | Path) -> Iterator[Noted]:
    """Inside, every kernel launch is noted for ``target`` and neither compiled nor run."""
    where = origin if isinstance(origin, Origin) else Origin(origin)
    noted: Noted = []
    original, compiler = JITFunction.run, JITFunction._do_compile
    seen: list[_Bound] = []

    def stop(
        self: JITFunction, key: Any, signature: Any, device: Any, constexprs: Any, options: Any,
        attrs: Any, *rest: Any,
    ) -> None:  # fmt: skip
        seen.append(_Bound(signature, constexprs, attrs))

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        options = {
            k: v for k, v in kwargs.items() if k not in self.arg_names or k in LAUNCH_OPTIONS
        }
        if self.debug and "debug" not in options:  # @triton.jit(debug=True)
            options["debug"] = True
        seen.clear()
        original(self, *args, grid=grid, warmup=True, **kwargs)
        spec = _specialization(self, seen[-1], options, where)
        noted.append((spec, _call(self, spec.key, grid, args, kwargs)))
        return Inert("a traced launch")  # for callers that ask the compiled kernel something

    JITFunction.run, JITFunction._do_compile = run, stop
    try:
        with compile_only(target):
            yield noted
    finally:
        JITFunction.run, JITFunction._do_compile = original, compiler


def _specialization(
    function: JITFunction, bound: _Bound, options: dict[str, Any], origin: Origin
) -> Specialization:
    folder, file = origin.folder, origin.file
    constants = bound.constants
    for one in (function, *(v for v in constants.values() if hasattr(v, "fn"))):
        if id(one) not in origin.known:
            origin.known[id(one)] = one
            origin.sources.update(dict.fromkeys(_source_files(one)))
            if one is function and not importable(function):
                del origin.known[id(one)]
                raise ProblemError(
                    f"{function.fn.__qualname__} in {source_file(function.fn)} is not found by"
                    " importing that file: a compile job could not either; define it at the top of"
                    " the file"
                )
    studied = file is not None and function is origin.kernel
    name = function.fn.__name__
    return Specialization(
        file=relative(source_file(function.fn), folder),
        kernel=file.function if studied and file else name,
        qualname=function.fn.__qualname__ if studied or function.fn.__qualname__ != name else "",
        source=function.cache_key,
        sys_path=file.sys_path if file else [],
        stub_modules=file.stub_modules if file else [],
        signature={k: encode(v, folder) for k, v in bound.signature.items()},
        constants=[(list(p), encode(v, folder)) for p, v in bound.constants.items()],
        attributes=[(list(p), encode(v, folder)) for p, v in bound.attributes.items()],
        options={k: encode(v, folder) for k, v in options.items()},
    )


def _source_files(function: Any) -> Iterator[Path]:
    """Files of ``function`` and of every JIT function it reaches by its globals; Triton's left out."""
    pending, seen = [function], set()
    while pending:
        one = pending.pop()
        if id(one) in seen or not hasattr(getattr(one, "fn", None), "__code__"):
            continue
        seen.add(id(one))
        path = source_file(one.fn)
        if path.is_relative_to(_TRITON):
            continue
        yield path
        names, scope = names_used(one.fn), one.get_capture_scope()
        used = [scope[n] for n in names if n in scope]
        modules = [m for m in used if isinstance(m, ModuleType)]
        used += [vars(m)[n] for m in modules for n in names if n in vars(m)]
        pending += [u for u in used if isinstance(u, _callable_kinds())]


def _callable_kinds() -> tuple[type, ...]:
    """What a kernel may call: JIT functions, and constexpr functions."""
    from triton.runtime.jit import JITCallable

    return (JITCallable,)


def _call(
    function: JITFunction, key: str, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Call:
    named = {k: v for k, v in kwargs.items() if k in function.arg_names}
    bound = function.signature.bind_partial(*args, **named)
    bound.apply_defaults()
    values = {
        k: v.value if isinstance(v, triton.language.constexpr) else v
        for k, v in bound.arguments.items()
    }
    if callable(grid):
        grid = grid({**values, **kwargs})
    return Call(
        specialization=key,
        grid=[int(n) for n in grid],
        scalars={k: v for k, v in values.items() if v is None or isinstance(v, (int, float, str))},
        dtypes={k: str(t) for k, v in values.items() if (t := _element_type(v)) is not None},
    )


def _element_type(value: Any) -> Any:
    """Of a tensor or a tensor descriptor; a dtype object itself has none."""
    return getattr(getattr(value, "base", None), "dtype", None) or getattr(value, "dtype", None)
