"""Runs when an interpreter starts under ``occupancy-probe run``; see :mod:`occupancy_probe.launch.program`."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

_here = Path(__file__).resolve().parent


def _run_the_one_behind():
    """The environment's own sitecustomize, which this one hides."""
    others = [p for p in sys.path if Path(p).resolve() != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _begin():
    try:
        from occupancy_probe.launch.program import begin
    except ImportError:  # an interpreter without this package: the source it came from will do
        sys.path.append(str(_here.parents[2]))
        from occupancy_probe.launch.program import begin
    begin()


try:
    _run_the_one_behind()
finally:
    _begin()
