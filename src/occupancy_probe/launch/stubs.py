"""Inert modules that stand, while a kernel's file is imported, for what is not installed here."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

_PLAIN = (str, bytes, int, float, complex, list, tuple, dict, set, type(None))
"""What a decorator is configured with rather than put around."""


class Inert:
    """Stands for anything in a stub module: every use of it is allowed and does nothing.

    Called with one function or class it returns that, so that decorators leave what they decorate.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_name":  # the latter while it is being copied
            raise AttributeError(name)
        return Inert(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and not isinstance(args[0], (Inert, *_PLAIN)):
            return args[0]  # used as a decorator: a function, or an autotuner around one
        return Inert(f"{self._name}()")

    def __getitem__(self, key: Any) -> Inert:
        return Inert(f"{self._name}[{key!r}]")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return ()

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, kind: type) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Inert:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False

    def __int__(self) -> int:
        return 0

    def __or__(self, other: Any) -> Inert:
        return self

    __ror__ = __or__

    def _compare(self, other: Any) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def __repr__(self) -> str:
        return f"<stub {self._name}>"


class _Stub(ModuleType):
    __all__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes stub modules; a stubbed package with real parts keeps the path to them."""

    def __init__(self, names: Iterable[str], real: Mapping[str, Path]) -> None:
        self._names, self._real = tuple(names), real
        self.made: list[str] = []

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not self._stands_for(fullname):
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname in self._real:
            spec.submodule_search_locations = [str(self._real[fullname])]
        return spec

    def _stands_for(self, name: str) -> bool:
        """Itself named, or below a named module that has no real parts."""
        return name in self._names or any(
            name.startswith(f"{n}.") for n in self._names if n not in self._real
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.made.append(spec.name)
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


@contextmanager
def stubbed(names: Iterable[str], real: Mapping[str, Path] | None = None) -> Iterator[None]:
    """Inside, importing any of ``names``, or what lies below them, gives an inert module.

    real: packages whose sub-modules are to be found in this folder although their own
    ``__init__.py`` is not run. Afterwards ``sys.modules`` holds no stub and what stood there before.
    """
    finder = _Finder(names, real or {})
    hidden = {n: m for n, m in sys.modules.items() if finder._stands_for(n)}
    for name in hidden:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in finder.made:
            if isinstance(sys.modules.get(name), _Stub):
                del sys.modules[name]
        sys.modules.update(hidden)
