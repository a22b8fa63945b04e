"""Run another command under the Triton of another environment."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "run another command under the Triton of another environment"
STUDY = False


def add_arguments(parser: ArgumentParser) -> None:
    """The environment, and the command with all its options."""
    parser.add_argument("place", type=Path, help="Python executable, environment or folder")
    parser.add_argument("command", nargs=argparse.REMAINDER)


def run(options: Namespace) -> int:
    """See the module."""
    from occupancy_probe.launch.environment import run_under

    return run_under(options.place, options.command)
