"""Import a kernel file or a Problem from its folder, with errors that name the file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch.problem import Problem


def load_file(path: Path) -> ModuleType:
    """The module at ``path``, imported once per process under its own stem, siblings importable."""
    path, name = path.resolve(), path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ProblemError(f"{path}: no such Python file; correct kernel.path in the study")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        sys.modules.pop(name, None)
        raise ProblemError(f"{path}: cannot be imported: {type(e).__name__}: {e}") from e
    return module


def load_problem(folder: Path, name: str, parameters: Mapping[str, Any]) -> Problem:
    """``name(**parameters)`` from ``folder/problem.py``."""
    path = folder / "problem.py"
    module = load_file(path)
    kind = getattr(module, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Problem)):
        known = [
            n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Problem)
        ]
        raise ProblemError(
            f"{path}: no Problem named {name!r}; it has {', '.join(k for k in known if k != 'Problem')}"
        )
    try:
        return kind(**parameters)
    except TypeError as e:
        raise ProblemError(f"{path}: {name}: kernel.parameters do not fit: {e}") from e
