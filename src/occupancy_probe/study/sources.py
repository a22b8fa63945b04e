"""Which files a kernel is made of: followed from import to import without running any of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


def import_closure(
    start: Iterable[Path], roots: Sequence[Path] = (), skip: Iterable[str] = ()
) -> tuple[Path, ...]:
    """``start`` and every file that it imports, directly or not, from its own package or ``roots``.

    roots: folders in which absolute imports are looked up, beside the folder (or the package's
    root) of each file of ``start``; what lies elsewhere (installed distributions) is not followed.
    skip: modules, with all below them, that stubs stand for. A file that does not parse is listed
    and not followed.
    """
    found: dict[Path, None] = {}
    pending = [path.resolve() for path in start]
    folders = [*dict.fromkeys([*(r.resolve() for r in roots), *map(package_root, pending)])]
    stubs = _Stubs(frozenset(skip), frozenset(p for f in pending for p in _parents(module_name(f))))
    pending += [f for p in pending for f in _files_of(module_name(p), folders, stubs)]
    while pending:
        path = pending.pop()
        if path in found or not path.is_file():
            continue
        found[path] = None
        for name in _imported(path):
            if not stubs.stand_for(name):
                pending += _files_of(name, folders, stubs)
    return tuple(sorted(found))


@dataclass(frozen=True)
class _Stubs:
    """Modules that are not really imported; packages ``around`` the kernel's file have real parts."""

    names: frozenset[str]
    around: frozenset[str]

    def stand_for(self, name: str) -> bool:
        above = (p for p in _parents(name) if p not in self.around)
        return name in self.names or any(p in self.names for p in above)


def package_root(path: Path) -> Path:
    """The folder from which ``path`` is imported: the first one upwards that is no package."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def module_name(path: Path) -> str:
    """Dotted name of ``path`` as seen from its package's root; its stem where it has no package."""
    parts = path.relative_to(package_root(path)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _imported(path: Path) -> Iterator[str]:
    """Dotted names that ``path`` imports; ``from a import b`` gives ``a`` and ``a.b``."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{a.name}".lstrip(".") for a in node.names if a.name != "*")


def _files_of(name: str, folders: Iterable[Path], stubs: _Stubs) -> list[Path]:
    """Files that importing ``name`` runs: its own and those of the packages above it."""
    for folder in folders:
        files = []
        for part in (*_parents(name), name):
            here = folder.joinpath(*part.split("."))
            module = here / "__init__.py" if here.is_dir() else here.with_name(f"{here.name}.py")
            if module.is_file() and part not in stubs.names:
                files.append(module)
        if files:
            return files
    return []


def _parents(name: str) -> list[str]:
    """Packages above ``name``, from the outermost in."""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]
