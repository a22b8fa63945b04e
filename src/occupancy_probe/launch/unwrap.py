"""Find the Triton kernel inside whatever autotuners, heuristics and libraries wrapped around it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from occupancy_probe.exc import ProblemError

_PLACES = ("fn", "kernel", "jit_function", "jit_fn", "func", "_fn", "_kernel", "_init_fn")
"""Where wrappers of known libraries keep what they wrap; other attributes are looked at after these."""
_DEPTH = 8
_NOT_SEARCHED = {"builtins", "torch", "triton", "numpy"}


def is_kernel(thing: Any) -> bool:
    """A JITFunction, or what stands for one in the interpreter."""
    return _is_a(thing, "JITFunction", "InterpretedFunction")


def unwrap(kernel: Any) -> Any:
    """The JITFunction under any stack of wrappers; ProblemError if there is none, or more than one."""
    while not is_kernel(kernel):
        outer = launchable(kernel)
        kernel = outer if is_kernel(outer) else outer.fn
    return kernel


def launchable(thing: Any) -> Any:
    """The outermost layer in ``thing`` that Triton itself can launch: autotuner, heuristics, kernel."""
    found = _search(thing, set(), _DEPTH)
    if len(found) == 1:
        return found[0]
    what = getattr(thing, "__name__", None) or f"a {type(thing).__name__}"
    if not found:
        raise ProblemError(f"{what} holds no Triton kernel; name the function under @triton.jit")
    names = sorted({getattr(k, "__name__", None) or unwrap(k).__name__ for k in found})
    raise ProblemError(f"{what} holds several kernels: {', '.join(names)}; name one of them")


def layers(kernel: Any) -> Iterator[Any]:
    """Triton's own layers from the outside in, the JITFunction last."""
    layer = launchable(kernel)
    yield layer
    while not is_kernel(layer):
        layer = launchable(layer.fn)
        yield layer


def _is_a(thing: Any, *names: str) -> bool:
    """By name, so that neither Triton nor its interpreter is imported for the question."""
    return any(
        kind.__name__ in names and kind.__module__.startswith("triton.")
        for kind in type(thing).__mro__
    )


def _search(thing: Any, seen: set[int], depth: int) -> list[Any]:
    if _is_a(thing, "JITFunction", "InterpretedFunction", "Autotuner", "Heuristics"):
        return [thing]
    if depth == 0 or id(thing) in seen or not _searched(thing):
        return []
    seen.add(id(thing))
    for inner in _named(thing):
        if found := _search(inner, seen, depth - 1):
            return found
    found = [k for inner in _held(thing) for k in _search(inner, seen, depth - 1)]
    return list({id(k): k for k in found}.values())


def _searched(thing: Any) -> bool:
    """Not values, modules or what torch and Triton are made of."""
    if isinstance(thing, (types.ModuleType, type, str, bytes, int, float, complex, type(None))):
        return False
    if type(thing).__module__.partition(".")[0] in ("torch", "numpy"):
        return type(thing).__name__ == "CustomOpDef"
    module = getattr(thing, "__module__", None)
    return not (
        isinstance(thing, types.FunctionType)
        and isinstance(module, str)
        and module.partition(".")[0] in _NOT_SEARCHED
    )


def _named(thing: Any) -> Iterator[Any]:
    own = getattr(thing, "__dict__", {})
    if isinstance(thing, functools.partial):
        yield thing.func
    for place in ("__wrapped__", *_PLACES):
        if place in own or place in getattr(type(thing), "__slots__", ()):
            yield own[place] if place in own else getattr(thing, place, None)


def _held(thing: Any) -> Iterator[Any]:
    """Whatever else an object holds: attributes, items, a function's closure and used globals."""
    if isinstance(thing, types.MethodType):
        yield thing.__self__
        thing = thing.__func__
    if isinstance(thing, types.FunctionType):
        for cell in thing.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # an empty cell
                continue
        yield from (thing.__globals__[n] for n in names_used(thing) if n in thing.__globals__)
        return
    if isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, (list, tuple)):
        yield from thing
    else:
        yield from getattr(thing, "__dict__", {}).values()


def names_used(function: types.FunctionType) -> set[str]:
    """Global names and attributes that ``function``'s code mentions, nested functions included."""
    names: set[str] = set()
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return names
