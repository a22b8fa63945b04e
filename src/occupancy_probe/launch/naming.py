"""What ``module:kernel`` stands for in a running program, and which kernels go by that name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_probe.exc import ForceError, ProblemError
from occupancy_probe.launch.unwrap import is_kernel, unwrap

_MAIN = ("__main__", "__mp_main__")
"""The script, and the script as multiprocessing imports it into a child."""


def find(name: str, known: Any = None) -> tuple[Any, bool]:
    """What ``name`` stands for by now, None if nothing yet, and whether it can still change.

    known: what it stood for when last asked, which is a kernel or holds one.
    A module settles what its names mean when its import is over; a script never does. ForceError if
    a module that is imported lacks the name.
    """
    module_name, _, attribute = name.partition(":")
    module = sys.modules.get(module_name) or _script(module_name)
    if module is None:
        return None, True
    importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    open_ = importing or module is sys.modules.get("__main__")
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            if open_:
                return None, True
            raise ForceError(f"{name}: {module_name} has no kernel {attribute!r}; {_there(module)}")
        found = getattr(found, part)
    if found is None or (open_ and found is not known and not _holds_a_kernel(found)):
        return None, True  # a placeholder
    return found, open_


def found_beside(name: str, kernel: Any) -> Any:
    """What ``name`` stands for in the module that made ``kernel``, if that is it; else None.

    It reaches modules that ``sys.modules`` has not, or not any more: those that a program executes
    by itself, the earlier or later one of a reload, a script's copy in a child or under its own name.
    """
    module_name, _, attribute = name.partition(":")
    made_in = kernel.fn.__globals__
    if not _goes_by(made_in, module_name):
        return None
    first, *rest = attribute.split(".")
    found = made_in.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return found if _holds_a_kernel(found) and unwrap(found) is kernel else None


def is_copy(kernel: Any, other: Any) -> bool:
    """Both are one definition of one file, which was imported under two module names."""
    one, two = kernel.fn, other.fn
    if one.__globals__ is two.__globals__ or "<locals>" in one.__qualname__:
        return False
    files = [Path(f.__code__.co_filename) for f in (one, two)]
    same = one.__code__ == two.__code__
    return same and all(f.exists() for f in files) and files[0].samefile(files[1])


def _goes_by(names: Mapping[str, Any], module_name: str) -> bool:
    """Whether a module with these globals is called ``module_name``; a script also by its file."""
    own = names.get("__name__")
    if own not in _MAIN:
        return own == module_name
    spec, file = names.get("__spec__"), names.get("__file__")
    return (
        module_name in _MAIN
        or getattr(spec, "name", None) == module_name  # python -m
        or (file is not None and _stem(file) == module_name)
    )


def _script(module_name: str) -> ModuleType | None:
    main = sys.modules.get("__main__")
    return main if main is not None and _goes_by(vars(main), module_name) else None


@functools.cache
def _stem(file: str) -> str:
    return Path(file).stem


def _holds_a_kernel(thing: Any) -> bool:
    try:
        return unwrap(thing) is not None
    except ProblemError:
        return False


def _there(module: ModuleType) -> str:
    known = [n for n, v in vars(module).items() if is_kernel(v) or hasattr(v, "arg_names")]
    return f"it has {', '.join(known) or 'none'}"
