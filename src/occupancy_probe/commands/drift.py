"""drift@NAME.json and .txt: the matrix under another Triton against the one under this."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "what another Triton makes of every arm, from → to"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--environment", required=True, help="name of the environment")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.research.drift import compare_environment, summary, table

    study, name = load_study(options.study), options.environment
    found = compare_environment(study, options.results, name)
    records.write_text(options.results / f"drift@{name}.txt", table(found))
    records.write_record(options.results / f"drift@{name}.json", found)
    for line in summary(found):
        print(f"{study.name}: {name}: {line}")
