"""audit.json: what the autotuner around the kernel does with the study's launches."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "what the autotuner around the kernel sees, costs and breaks"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.research.audit import audit, read_matrix_of

    study = load_study(options.study)
    found = audit(study, read_matrix_of(options.results, study), options.workers)
    records.write_record(options.results / "audit.json", found)
    print(f"{study.name}: audit: {len(found.findings)} findings")
    for sentence in found.findings:
        print(f"  {sentence}")
