"""serving/<device>/<workload>.json: tokens per second of a real server, arm by arm."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.commands.measure import right_arms
from occupancy_probe.commands.shared import write_index
from occupancy_probe.exc import StudyError
from occupancy_probe.progress import progress
from occupancy_probe.study import BASELINE, NULL, load_study

HELP = "time a real server under every right arm, restart by restart"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument(
        "--arms",
        default="",
        help="some arms only, by name, separated by commas; default: all right ones",
    )


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.device import GpuTurn, assigned, run_versions, same_model
    from occupancy_probe.execute.serving import serve_arms

    study, gpus = load_study(options.study), same_model()
    slug = gpus[0].slug
    root: Path = options.results
    if study.file.serve is None:
        raise StudyError(f"{study.path}: serve: missing; say how a server is started, and its load")
    right = right_arms(study, root, slug, gpus[0].target)
    asked = [a for a in options.arms.split(",") if a] or right
    if unknown := [a for a in asked if a not in right]:
        raise StudyError(
            f"--arms: {', '.join(unknown)} not right on {gpus[0].name}; right: {', '.join(right)}"
        )
    arms = list(dict.fromkeys([BASELINE, NULL, *asked]))
    plan = records.read_record(root / "plan.json", records.Plan)
    commit = records.read_record(root / "plan_commit.json", records.PlanCommit)
    with assigned(gpus) as gpu, progress(f"{study.name}: serve on {gpu.name}") as report:
        folder, turn = root / "serving" / slug, GpuTurn(gpu)
        found = serve_arms(study, plan, commit, arms, folder, turn, run_versions(gpu), report)
    failures = [text for record in found.values() for text in record.failures]
    write_index(root / "serving" / f"{slug}.json", {"failures": failures})
    print(
        f"{study.name}: {gpu.name} {gpu.uuid}: {len(arms)} arms served, {len(failures)} starts or"
        " loads without a figure"
    )
