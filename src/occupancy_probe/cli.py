"""The command line that rules call: one sub-command per module of :mod:`occupancy_probe.commands`."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from occupancy_probe import commands
from occupancy_probe.exc import ProbeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one stage; 0 on success, 2 with one line per fault on standard error."""
    options = _parser().parse_args(arguments)
    try:
        status: int | None = options.run(options)
        return status or 0
    except ProbeError as e:
        for line in str(e).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="occupancy-probe", description="The stages of a study, one by one."
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for found in pkgutil.iter_modules(commands.__path__):
        module = importlib.import_module(f"{commands.__name__}.{found.name}")
        if not hasattr(module, "run"):
            continue
        made = subparsers.add_parser(found.name, help=module.HELP, description=module.__doc__)
        if getattr(module, "STUDY", True):
            made.add_argument("study", type=Path, help="the study file")
            made.add_argument(
                "--results", type=Path, required=True, help="the study's folder of results"
            )
        module.add_arguments(made)
        made.set_defaults(run=module.run)
    return parser
