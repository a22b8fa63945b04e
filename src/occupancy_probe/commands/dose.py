"""dose/<device>/<arm>.json: the same binary at 1, 2 … CTAs per SM; dose/<device>.json over them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.commands.measure import right_arms
from occupancy_probe.commands.shared import write_index
from occupancy_probe.progress import progress
from occupancy_probe.study import load_study

HELP = "time the study's occupancy doses on the GPU here"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.device import GpuTurn, assigned, l2_bytes, run_versions, same_model
    from occupancy_probe.execute.dose import measure_doses
    from occupancy_probe.execute.job import problem_job
    from occupancy_probe.execute.precompile import precompile
    from occupancy_probe.gpu import target
    from occupancy_probe.research.matrix import read_matrix

    study, gpus = load_study(options.study), same_model()
    root: Path = options.results
    slug = gpus[0].slug
    index = root / "dose" / f"{slug}.json"
    if study.file.dose is None:
        write_index(index, {"doses": "none are planned"})
        return
    matrix = {t: read_matrix(root / "feasibility" / t) for t in study.file.targets}
    here = matrix[gpus[0].target]
    right = right_arms(study, root, slug, gpus[0].target)
    named = dict.fromkeys(here[a].same_code_as or a for a in study.file.dose.arms if a in here)
    arms = [a for a in named if a in right]
    skipped = {a: "not right here, or does not fit" for a in named if a not in right}
    if not arms:
        write_index(index, {"doses": "no arm is left", "skipped": skipped})
        return
    with assigned(gpus) as gpu:
        turn = GpuTurn(gpu)
        with progress(f"{study.name}: compile for {gpu.name}") as report:
            precompile(
                problem_job(study),
                {w.name: w.axes for w in study.workloads},
                {a: study.arm(a).config for a in (*arms, "baseline")},
                gpu,
                study.file.limits.compile_s * len(study.workloads),
                report,
            )
        with progress(f"{study.name}: occupancy dose on {gpu.name}") as report:
            found = measure_doses(
                study,
                records.read_record(root / "plan.json", records.Plan),
                records.read_record(root / "plan_commit.json", records.PlanCommit),
                arms,
                matrix,
                target(gpu.target),
                root / "dose" / slug,
                turn,
                l2_bytes(gpu),
                run_versions(gpu),
                report,
            )
    write_index(index, {"arms": {a: list(d.points) for a, d in found.items()}, "skipped": skipped})
    held = sum(d.held_seconds for d in found.values())
    busy = sum(d.busy_seconds for d in found.values())
    doses = sum(len(d.points) for d in found.values())
    print(
        f"{study.name}: {gpu.name} {gpu.uuid}: {doses} doses of {len(found)} arms,"
        f" GPU held {held:.1f} s, busy {busy:.1f} s"
    )
