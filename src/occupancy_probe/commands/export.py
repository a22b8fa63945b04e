"""exports/: the winner as code, an autotune list, the autotune cache, the warm-up calls."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "the outcome as code that a program can use"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.validate.exports import write_exports

    study = load_study(options.study)
    verdict = records.read_record(options.results / "verdict.json", records.Verdict)
    for path in write_exports(study, verdict, options.results / "exports"):
        print(f"{study.name}: {path}")
