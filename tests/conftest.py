"""Shared by all tests: the fixtures' studies, and a Triton cache that does not outlive the run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(scope="session", autouse=True)
def triton_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nothing is taken from, or left in, the user's cache; worker processes inherit it."""
    folder = tmp_path_factory.mktemp("triton")
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    yield folder
    os.environ.pop("TRITON_CACHE_DIR")
    if before is not None:
        os.environ["TRITON_CACHE_DIR"] = before


@contextmanager
def own_imports() -> Iterator[None]:
    """Forget `kernel` and `problem` before and after: a stage has a process of its own, tests do not."""

    def forget() -> None:
        for name in ("kernel", "problem"):
            sys.modules.pop(name, None)

    path = list(sys.path)
    forget()
    try:
        yield
    finally:
        forget()
        sys.path[:] = path


@pytest.fixture
def imports() -> Iterator[None]:
    """The test imports kernels of its own."""
    with own_imports():
        yield


def copy_fixture(name: str, folder: Path) -> Path:
    """The study `name` with its kernel, copied to `folder`; the path of the study."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIXTURES / f"{name}.yaml", folder)
    kernel = name.split("_")[0]
    shutil.copytree(
        FIXTURES / kernel, folder / kernel, ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder / f"{name}.yaml"


@pytest.fixture(scope="session")
def trace_of():
    """Traces by study path, each made once."""
    made = {}

    def trace(path: Path):
        from occupancy_probe.launch.launches import trace_study
        from occupancy_probe.study import load_study

        if path not in made:
            with own_imports():
                made[path] = trace_study(load_study(path))
        return made[path]

    return trace
