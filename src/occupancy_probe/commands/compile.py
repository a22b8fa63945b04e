"""feasibility/<target>/<arm>.json for every arm, and feasibility/<target>.json over them."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.commands.shared import beside
from occupancy_probe.progress import progress
from occupancy_probe.study import load_study

HELP = "compile every arm for one target and judge it"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--target", required=True)
    parser.add_argument("--environment", default="", help="name of the Triton that this runs under")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.gpu import target
    from occupancy_probe.research.matrix import feasibility_matrix, one_line, summary

    study = load_study(options.study)
    folder = options.results / beside("feasibility", options.environment)
    chosen = target(options.target)
    with progress(f"{study.name}: compile for {chosen.name}") as report:
        matrix = feasibility_matrix(
            study,
            records.read_record(
                options.results / beside("trace.json", options.environment), records.Trace
            ),
            chosen,
            folder / chosen.name,
            options.workers,
            report,
        )
    found = summary(chosen, matrix, study.must_fit(chosen.name))
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    records.write_text(folder / f"{chosen.name}.json", text)
    print(f"{study.name}: {one_line(found)}")
