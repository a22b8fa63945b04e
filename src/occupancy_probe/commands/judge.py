"""verdict.json: every row's verdict and each device's decision."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "statistics, verdicts, decision"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.outcome import here

    found = here(load_study(options.study), options.results)
    records.write_record(options.results / "verdict.json", found.verdict)
