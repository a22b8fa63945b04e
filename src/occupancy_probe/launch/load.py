"""Import a kernel file or a Problem, with errors that name the file and the remedy."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch.encoding import decode, source_file
from occupancy_probe.launch.problem import Problem
from occupancy_probe.launch.stubs import stubbed
from occupancy_probe.launch.unwrap import is_kernel, unwrap
from occupancy_probe.records import KernelFile, Specialization
from occupancy_probe.study import Study
from occupancy_probe.study.sources import module_name, package_root

_TAKEN = sys.stdlib_module_names | {"torch", "triton"}
"""Names that a file must not take in ``sys.modules``, whatever it is called."""


def load_file(
    path: Path, sys_path: Iterable[Path] = (), stub_modules: Iterable[str] = ()
) -> ModuleType:
    """The module at ``path``, imported once per process.

    A file of a package is imported as a part of it; any other under its own stem, siblings
    importable. sys_path: further folders to import from. stub_modules: see :mod:`.stubs`.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - a link keeps the place that it is used from
    if not path.is_file():
        raise ProblemError(f"{path}: no such Python file; correct kernel.path or kernel.file")
    root, name = package_root(path), module_name(path)
    if name in _TAKEN:
        name = f"kernel_file_{name}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    for folder in reversed([str(root), *map(str, sys_path)]):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    stubs = tuple(stub_modules)
    above = {p for p in _parents(name) if p in stubs}
    real = {p: root.joinpath(*p.split(".")) for p in above}
    before = {n for n in sys.modules if n == name or n.startswith(f"{name.partition('.')[0]}.")}
    try:
        with stubbed(stubs, real):
            return _import(name, path)
    except Exception as e:
        for new in [n for n in sys.modules if n == name and n not in before]:
            del sys.modules[new]
        raise ProblemError(f"{path}: cannot be imported: {_fault(e)}") from e


def _import(name: str, path: Path) -> ModuleType:
    if "." in name or path.name == "__init__.py":
        module = importlib.import_module(name)
        if Path(module.__file__ or "").resolve() != path.resolve():
            raise ImportError(f"{name} is already imported from {module.__file__}")
        return module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:i]) for i in range(1, len(parts)))


def _fault(error: Exception) -> str:
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name and "stub_modules" not in said:
        return f"{said}; install it, or add it to stub_modules if the kernel does not need it"
    return said


def kernel_file(study: Study) -> KernelFile | None:
    """Where the study's kernel is, if somebody else's file defines it."""
    if study.kernel_file is None:
        return None
    kernel, folder = study.file.kernel, study.kernel_folder
    return KernelFile(
        file=_beside(study.kernel_file, folder),
        function=kernel.function,
        sys_path=[_beside(p, folder) for p in study.sys_path],
        stub_modules=kernel.stub_modules,
        requires=kernel.requires,
    )


def _beside(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def load_kernel(folder: Path, where: KernelFile) -> Any:
    """The kernel that ``where`` names, with whatever its file wraps around it.

    folder: what the paths in ``where`` are relative to.
    """
    _check_installed(where.requires)
    path = Path(os.path.normpath(folder / where.file))
    module = load_file(path, [folder / p for p in where.sys_path], where.stub_modules)
    found = _attribute(module, where.function)
    if not _holds_kernel(found):  # nothing, or a plain function that a kernel was made of
        found = _by_name(module, where.function) or found
    if found is None:
        known = sorted({unwrap(k).__name__ for k in _kernels_in(vars(module))})
        raise ProblemError(
            f"{path}: no {where.function!r}; its kernels: {', '.join(known) or 'none'}; correct"
            " kernel.function"
        )
    try:
        unwrap(found)
    except ProblemError as e:
        raise ProblemError(f"{path}: kernel.function: {e}") from e
    return found


def load_function(folder: Path, spec: Specialization) -> Any:
    """The JITFunction of a traced specialization, for a compile job."""
    return _function(
        Path(os.path.normpath(folder / spec.file)),
        spec.qualname or spec.kernel,
        tuple(folder / p for p in spec.sys_path),
        tuple(spec.stub_modules),
    )


def decoded(value: Any, folder: Path, spec: Specialization) -> Any:
    """A value of ``spec`` as Triton takes it; kernels and classes in it are imported."""

    def resolve(file: str, name: str) -> Any:
        path = Path(os.path.normpath(folder / file))
        module = load_file(path, [folder / p for p in spec.sys_path], spec.stub_modules)
        found = _attribute(module, name)
        return found if isinstance(found, type) else _inner(module, found, name)

    return decode(value, resolve)


@cache
def _function(path: Path, name: str, sys_path: tuple[Path, ...], stubs: tuple[str, ...]) -> Any:
    module = load_file(path, sys_path, stubs)
    return _inner(module, _attribute(module, name), name)


def _inner(module: ModuleType, found: Any, name: str) -> Any:
    """The JITFunction over the function called ``name``, bound to that name or to another."""
    if found is not None:
        try:
            kernel = unwrap(found)
            if kernel.fn.__qualname__ == name:
                return kernel
        except ProblemError:
            pass
        if hasattr(found, "fn") and not is_kernel(found):  # e.g. a constexpr function
            return found
    kernel = _by_name(module, name)
    if kernel is None:
        raise ProblemError(f"{module.__file__}: {name} cannot be found after an import")
    return unwrap(kernel)


def importable(function: Any) -> bool:
    """Whether a fresh import of its file would give the JITFunction back under its name."""
    module = sys.modules.get(function.fn.__module__)
    if module is None or "<locals>" in function.fn.__qualname__:
        return False
    try:
        name = function.fn.__qualname__
        return _inner(module, _attribute(module, name), name) is function
    except ProblemError:
        return False


def _attribute(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _by_name(module: ModuleType, name: str) -> Any:
    """What holds a JITFunction over a function called ``name``, at the top or in a class there."""
    for thing in _kernels_in(vars(module)):
        if name in (unwrap(thing).fn.__qualname__, unwrap(thing).fn.__name__):
            return thing
    return None


def _kernels_in(names: Mapping[str, Any]) -> Iterator[Any]:
    """Values of a module, and of the classes it defines, that hold exactly one kernel."""
    for value in list(names.values()):
        if isinstance(value, type):
            yield from _kernels_in(vars(value)) if value.__module__ == names.get("__name__") else ()
            continue
        if _holds_kernel(value):
            yield value


def _holds_kernel(value: Any) -> bool:
    try:
        unwrap(value)
    except ProblemError:
        return False
    return True


def _check_installed(requires: Iterable[str]) -> None:
    for text in requires:
        try:
            wanted = Requirement(text)
        except InvalidRequirement as e:
            raise ProblemError(f"kernel.requires: {text!r} is no requirement: {e}") from e
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            raise ProblemError(
                f"kernel.requires: {text} is not installed; pip install '{text}'"
            ) from None
        if not wanted.specifier.contains(version, prereleases=True):
            raise ProblemError(
                f"kernel.requires: {text}, but {wanted.name} {version} is installed; pip install"
                f" '{text}'"
            )


def load_problem(
    folder: Path,
    name: str,
    parameters: Mapping[str, Any],
    kernel: KernelFile | Mapping[str, Any] | None = None,
) -> Problem:
    """``name(**parameters)`` from ``folder/problem.py``.

    kernel: of somebody else's file; it is loaded first and becomes the Problem's ``kernel``.
    """
    foreign = load_kernel(folder, KernelFile.model_validate(kernel)) if kernel else None
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
    if foreign is not None:
        # On a class of its own: __init__ may use the kernel already, and others share `kind`.
        kind = type(kind.__name__, (kind,), {"kernel": foreign, "__module__": kind.__module__})
    try:
        return kind(**parameters)
    except TypeError as e:
        raise ProblemError(f"{path}: {name}: kernel.parameters do not fit: {e}") from e


__all__ = [
    "decoded",
    "importable",
    "kernel_file",
    "load_file",
    "load_function",
    "load_kernel",
    "load_problem",
    "source_file",
]
