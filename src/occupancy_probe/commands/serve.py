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
    from occupancy_probe.execute.device import require_gpu, run_versions
    from occupancy_probe.execute.serving import serve_arms

    study, gpu = load_study(options.study), require_gpu()
    root: Path = options.results
    if study.file.serve is None:
        raise StudyError(f"{study.path}: serve: missing; say how a server is started, and its load")
    right = right_arms(study, root, gpu.slug, gpu.target)
    asked = [a for a in options.arms.split(",") if a] or right
    if unknown := [a for a in asked if a not in right]:
        raise StudyError(
            f"--arms: {', '.join(unknown)} not right on {gpu.name}; right: {', '.join(right)}"
        )
    arms = list(dict.fromkeys([BASELINE, NULL, *asked]))
    plan = records.read_record(root / "plan.json", records.Plan)
    commit = records.read_record(root / "plan_commit.json", records.PlanCommit)
    folder, device = root / "serving" / gpu.slug, (gpu.slug, gpu.name)
    with progress(f"{study.name}: serve on {gpu.name}") as report:
        found = serve_arms(study, plan, commit, arms, folder, device, run_versions(gpu), report)
    failures = [text for record in found.values() for text in record.failures]
    write_index(root / "serving" / f"{gpu.slug}.json", {"failures": failures})
    print(
        f"{study.name}: {len(arms)} arms served, {len(failures)} starts or loads without a figure"
    )
