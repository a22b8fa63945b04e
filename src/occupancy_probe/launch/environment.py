"""Another Triton: find it in an environment, and run a command of ours under it.

Only the package ``triton`` is taken from there, and put first on ``PYTHONPATH`` of this same Python:
what a study needs beside it need not be installed twice.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from occupancy_probe.exc import ProblemError
from occupancy_probe.lifetime import end_with_parent

_ASK = (
    "import importlib.util as u; s = u.find_spec('triton');"
    " print(s.submodule_search_locations[0] if s else '')"
)


def find_triton(place: Path) -> Path:
    """The folder of the package in ``place``: a Python executable, a virtual environment, or a
    folder that holds ``triton``; ProblemError if there is none that this Python can import."""
    candidates = [place / "triton", place, *place.glob("lib/python*/site-packages/triton")]
    if place.is_file():
        done = subprocess.run([str(place), "-c", _ASK], capture_output=True, text=True)
        candidates = [Path(done.stdout.strip() or "nowhere")]
    found = next((c for c in candidates if (c / "runtime" / "jit.py").is_file()), None)
    if found is None:
        raise ProblemError(
            f"{place}: no Triton there; give a Python executable, a virtual environment or a folder"
            " that holds the package triton"
        )
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if (tag := _python_tag(found)) not in (None, ours):
        raise ProblemError(f"{place}: its Triton is built for {tag}, this Python takes {ours}")
    return found


def triton_version(package: Path) -> str:
    """Version of the package, read without importing it."""
    text = (package / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r"""^__version__\s*=\s*["']([^"']+)""", text, re.MULTILINE)
    return found[1] if found else "unknown"


def default_name(place: Path) -> str:
    """What an environment without a name is called, e.g. ``triton-3.6.0``."""
    return f"triton-{triton_version(find_triton(place))}"


def run_under(place: Path, arguments: Sequence[str]) -> int:
    """``python -m occupancy_probe arguments`` with the Triton of ``place``; its exit status."""
    package = find_triton(place)
    with tempfile.TemporaryDirectory(prefix="occupancy-probe-") as folder:
        for part in (package, *package.parent.glob("triton-*.dist-info")):
            Path(folder, part.name).symlink_to(part.resolve())
        paths = [folder, os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-m", "occupancy_probe", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            preexec_fn=end_with_parent,
        )
    return done.returncode


def _python_tag(package: Path) -> str | None:
    """For which Python a wheel was built (``cp311``); None where that is not recorded."""
    for wheel in package.parent.glob("triton-*.dist-info/WHEEL"):
        if found := re.search(r"^Tag: (cp\d+)-cp", wheel.read_text(), re.MULTILINE):
            return found[1]
    return None
