"""audit.json: the autotuner's key against what the launches vary in."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "what the autotuner around the kernel sees of the study's launches"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.research.audit import audit_key

    study = load_study(options.study)
    found = audit_key(study, records.read_record(options.results / "trace.json", records.Trace))
    records.write_record(options.results / "audit.json", found)
