"""Another Triton: the same one under another path and version stands for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_probe.exc import ProblemError
from occupancy_probe.launch.environment import default_name, find_triton, triton_version

INSTALLED = Path(importlib.util.find_spec("triton").submodule_search_locations[0])
VERSION = "3.0.999"


def another_triton(folder: Path, version: str = VERSION) -> Path:
    """A folder whose `triton` is the installed one under another version; files are linked."""
    package = folder / "triton"
    package.mkdir(parents=True)
    for part in INSTALLED.iterdir():
        if part.name not in ("__init__.py", "__pycache__"):
            (package / part.name).symlink_to(part)
    text = (INSTALLED / "__init__.py").read_text()
    present = triton_version(INSTALLED)
    (package / "__init__.py").write_text(text.replace(f"'{present}'", f"'{version}'"))
    assert triton_version(package) == version
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return another_triton(tmp_path_factory.mktemp("environment"))


def test_a_folder_a_package_an_environment_and_an_interpreter(place, tmp_path):
    assert find_triton(place) == find_triton(place / "triton") == place / "triton"
    site = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "triton").symlink_to(place / "triton")
    assert find_triton(tmp_path / "venv") == site / "triton"
    assert find_triton(Path(sys.executable)) == INSTALLED
    assert default_name(place) == f"triton-{VERSION}"


@pytest.mark.parametrize("make", [lambda p: p / "none", lambda p: p])
def test_no_triton_there(tmp_path, make):
    with pytest.raises(ProblemError, match="no Triton there; give a Python executable"):
        find_triton(make(tmp_path))


def test_an_interpreter_without_triton(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho\n")
    python.chmod(0o755)
    with pytest.raises(ProblemError, match="no Triton there"):
        find_triton(python)


def test_a_triton_for_another_python_is_refused(tmp_path):
    another_triton(tmp_path)
    wheel = tmp_path / "triton-3.0.999.dist-info" / "WHEEL"
    wheel.parent.mkdir()
    wheel.write_text("Wheel-Version: 1.0\nTag: cp39-cp39-manylinux_2_28_x86_64\n")
    with pytest.raises(ProblemError, match="built for cp39, this Python takes cp3"):
        find_triton(tmp_path)


def test_a_command_runs_under_it(place, tmp_path):
    """The command's own failure is its exit status; what it imports is the other Triton."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys, atexit, importlib.util as u\n"
        "if 'schema' in sys.argv:\n    print(u.find_spec('triton').origin, file=sys.stderr)\n"
    )
    command = [sys.executable, "-m", "occupancy_probe", "under", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([*command, "schema"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    [path] = [
        line
        for line in done.stderr.splitlines()
        if line.endswith("__init__.py") and "occupancy-probe-" in line
    ]
    assert not Path(path).exists(), "the links are gone with the command"
    done = subprocess.run([*command, "nonesuch"], capture_output=True, text=True)
    assert done.returncode == 2 and "invalid choice: 'nonesuch'" in done.stderr
