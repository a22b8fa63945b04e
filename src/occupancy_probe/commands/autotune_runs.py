"""autotune/<device>.json: real first calls of the autotuned kernel, each in a fresh process."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter

from occupancy_probe import records
from occupancy_probe.progress import progress
from occupancy_probe.study import load_study
from occupancy_probe.templating import config_text

HELP = "what the kernel's own autotuner chooses on the GPU here, run after run"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--runs", type=int, default=20, help="fresh processes per workload")
    parser.add_argument("--workload", action="append", default=[], help="default: first and last")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.autotune_runs import autotune_runs, chosen
    from occupancy_probe.execute.device import assigned, same_model

    study, gpus = load_study(options.study), same_model()
    workloads = chosen(study, options.workload)
    with (
        assigned(gpus) as gpu,
        progress(f"{study.name}: autotune on {gpu.name}") as report,
    ):
        found = autotune_runs(study, workloads, options.runs, gpu, report)
    records.write_record(options.results / "autotune" / f"{gpu.slug}.json", found)
    for workload in workloads:
        runs = [r for r in found.runs if r.workload == workload.name]
        won = Counter(config_text(r.winner) or r.error or "nothing" for r in runs)
        said = ", ".join(f"{config}: {n} of {len(runs)}" for config, n in won.most_common())
        print(f"{study.name}: {gpu.name}: touched first at {workload.name}: {said}")
