"""trace.json: every launch's specialization and grid."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "note every launch of a study; nothing is compiled"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.launch.launches import trace_study

    records.write_record(options.results / "trace.json", trace_study(load_study(options.study)))
