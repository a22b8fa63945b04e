"""Shared by all tests: the fixtures' studies, and a Triton cache that does not outlive the run."""

from __future__ import annotations

import os
import shutil
import subprocess
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


@pytest.fixture
def own_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Git without the user's configuration and identity; an empty home folder."""
    home = tmp_path / "home"
    home.mkdir()
    for name in [n for n in os.environ if n.startswith("GIT_")] + ["EMAIL", "XDG_CONFIG_HOME"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return home


def git(folder: Path, *arguments: str) -> str:
    """Output of a real git command, whatever it is."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def work(own_git: Path, tmp_path: Path) -> Path:
    """A repository with an identity and one commit, `file` in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    (folder / "file").write_text("one\n")
    git(folder, "add", "file")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder
