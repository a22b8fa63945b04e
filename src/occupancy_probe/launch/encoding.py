"""JSON form of whatever Triton's binder puts into a specialization, and the way back."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from occupancy_probe.exc import ProblemError
from occupancy_probe.study.sources import module_name

Resolve = Callable[[str, str], Any]
"""``resolve(file, qualified name)``: what a file defines."""


def encode(value: Any, folder: Path) -> Any:
    """``value`` as JSON; files are named relative to ``folder``. ProblemError where it has no form.

    Numbers, strings and None stand for themselves, lists for tuples, and mappings with one key for
    the rest: ``constexpr``, ``dtype``, ``jit``, ``enum``, ``fields`` (named tuples, dataclasses).
    """
    if isinstance(value, enum.Enum):
        return {"enum": [*_place(type(value), folder), value.name]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = type(value)
    if kind.__module__.startswith("triton."):
        if kind.__name__ == "constexpr":
            return {"constexpr": encode(value.value, folder)}
        if kind.__name__ == "dtype":
            return {"dtype": str(value)}
        if hasattr(value, "fn"):
            return {"jit": _place(value.fn, folder)}
        if hasattr(value, "element_ty"):
            return {"pointer": encode(value.element_ty, folder)}
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"fields": [*_place(kind, folder), [encode(v, folder) for v in value]]}
    if isinstance(value, (list, tuple)):
        return [encode(v, folder) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, f.name) for f in dataclasses.fields(value) if f.init]
        return {"fields": [*_place(kind, folder), [encode(p, folder) for p in parts]]}
    raise ProblemError(
        f"a launch passes {value!r:.60} ({kind.__name__}) as a constant; a compile job can be given"
        " numbers, strings, dtypes, kernels, enums, tuples and dataclasses of them"
    )


def decode(value: Any, resolve: Resolve) -> Any:
    """Inverse of :func:`encode`; ``resolve`` finds kernels and classes in their files."""
    if isinstance(value, list):
        return tuple(decode(v, resolve) for v in value)
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "constexpr":
        import triton.language as tl

        return tl.constexpr(decode(content, resolve))
    if kind == "dtype":
        import triton.language as tl

        return tl.dtype(content)
    if kind == "pointer":
        import triton.language as tl

        return tl.pointer_type(decode(content, resolve))
    if kind == "torch":
        return getattr(importlib.import_module("torch"), content)
    if kind == "jit":
        return resolve(*content)
    if kind == "enum":
        file, name, member = content
        return resolve(file, name)[member]
    file, name, parts = content
    return resolve(file, name)(*(decode(p, resolve) for p in parts))


@cache
def source_file(thing: Any) -> Path:
    """The Python file that defines ``thing``, a function or class."""
    try:
        return Path(inspect.getsourcefile(thing) or "").resolve()
    except TypeError as e:
        raise ProblemError(f"{thing!r} is not defined in a Python file") from e


def relative(path: Path, folder: Path) -> str:
    """``path`` as seen from ``folder``, with forward slashes."""
    return Path(os.path.relpath(path, folder.resolve())).as_posix()


def _place(thing: Any, folder: Path) -> list[str]:
    name: str = thing.__qualname__
    if "<locals>" in name:
        raise ProblemError(
            f"{name} is made inside a function: a compile job cannot import it; define it at the top"
            f" of {module_name(source_file(thing))}"
        )
    return [relative(source_file(thing), folder), name]
