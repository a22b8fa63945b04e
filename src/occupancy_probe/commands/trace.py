"""trace.json: every launch's specialization and grid."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.commands.shared import beside
from occupancy_probe.study import load_study

HELP = "note every launch of a study; nothing is compiled"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--environment", default="", help="name of the Triton that this runs under")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.launch.launches import trace_study

    records.write_record(
        options.results / beside("trace.json", options.environment),
        trace_study(load_study(options.study)),
    )
