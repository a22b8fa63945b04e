"""measurement/<device>/<workload>.json, and measurement/<device>.json over them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.commands.shared import correct, surviving, write_index
from occupancy_probe.progress import progress
from occupancy_probe.study import load_study

HELP = "time the right arms by replicates on the GPU here"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.device import held, l2_bytes, require_gpu, run_versions
    from occupancy_probe.execute.measurement import measure as take

    study, gpu = load_study(options.study), require_gpu()
    root: Path = options.results
    arms = [
        name
        for name in surviving(root, gpu.target, study)
        if correct(root / "correctness" / gpu.slug / f"{name}.json")
    ]
    with held(gpu), progress(f"{study.name}: measure on {gpu.name}") as report:
        found = take(
            study,
            records.read_record(root / "plan.json", records.Plan),
            records.read_record(root / "plan_commit.json", records.PlanCommit),
            arms,
            root / "measurement" / gpu.slug,
            gpu,
            l2_bytes(gpu),
            run_versions(gpu),
            report,
        )
    seconds = {name: r.gpu_seconds for name, r in found.items()}
    write_index(root / "measurement" / f"{gpu.slug}.json", seconds)
    print(
        f"{study.name}: {gpu.name}: {len(arms)} arms timed, GPU busy {sum(seconds.values()):.0f} s"
    )
