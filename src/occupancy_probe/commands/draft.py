"""A study file from what `occupancy-probe run --record` wrote: the launches of a program as workloads."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.exc import RecordError, StudyError
from occupancy_probe.study.draft import draft
from occupancy_probe.study.load import load_study

HELP = "a study of the launches that `run --record` noted"
STUDY = False


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("launches", type=Path, help="the file that --record wrote")
    parser.add_argument("study", type=Path, help="the study file to write")
    parser.add_argument("--kernel", help="module:kernel, where several were launched")
    parser.add_argument("--target", action="append", default=[], help="default: sm_90, sm_120")


def run(options: Namespace) -> None:
    """See the module."""
    if options.study.exists():
        raise StudyError(
            f"{options.study}: is there already, and a draft would replace it; give another name, or"
            " remove it first"
        )
    try:
        content = json.loads(options.launches.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise RecordError(f"{options.launches}: {e}; record again with `run --record`") from e
    records.write_text(
        options.study, draft(content, options.kernel, options.target or ["sm_90", "sm_120"])
    )
    study = load_study(options.study)
    print(
        f"{options.study}: {study.file.kernel.function}: {len(study.workloads)} workloads, {len(study.arms)}"
        f" arms; say why in `hypothesis`, then `snakemake feasibility --config study={options.study}`"
    )
