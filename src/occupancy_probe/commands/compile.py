"""Per target feasibility/<target>/<arm>.json for every arm, and feasibility/<target>.json over them."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.commands.shared import beside
from occupancy_probe.progress import progress
from occupancy_probe.study import load_study

HELP = "compile every arm for every target and judge it"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--target", action="append", help="default: every target of the study")
    parser.add_argument("--environment", default="", help="name of the Triton that this runs under")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.gpu import target
    from occupancy_probe.research.matrix import feasibility_matrices, one_line, summary

    study = load_study(options.study)
    folder = options.results / beside("feasibility", options.environment)
    targets = [target(name) for name in options.target or study.file.targets]
    trace = options.results / beside("trace.json", options.environment)
    with progress(f"{study.name}: compile") as report:
        matrices = feasibility_matrices(
            study,
            records.read_record(trace, records.Trace),
            targets,
            folder,
            options.workers,
            report,
        )
    for chosen in targets:
        found = summary(chosen, matrices[chosen.name], study.must_fit(chosen.name))
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        records.write_text(folder / f"{chosen.name}.json", text)
        print(f"{study.name}: {one_line(found)}")
