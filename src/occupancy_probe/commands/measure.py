"""measurement/<device>/<workload>.json, confirmation/<device>/…, measurement/<device>.json over them."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy_probe import records
from occupancy_probe.commands.shared import correct, feasibility_only, surviving, write_index
from occupancy_probe.progress import progress
from occupancy_probe.study import BASELINE, NULL, Study, load_study

if TYPE_CHECKING:
    from occupancy_probe.execute.measurement import Records

HELP = "time the right arms by replicates on the GPU here"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute import measurement as m
    from occupancy_probe.execute.device import (
        GpuTurn,
        assigned,
        l2_bytes,
        run_versions,
        same_model,
    )
    from occupancy_probe.execute.job import problem_job
    from occupancy_probe.execute.precompile import precompile

    study, gpus = load_study(options.study), same_model()
    root: Path = options.results
    slug = gpus[0].slug
    folder = root / "measurement" / slug
    if feasibility_only(study, root / "measurement" / f"{slug}.json"):
        return
    arms = right_arms(study, root, slug, gpus[0].target)
    plan = records.read_record(root / "plan.json", records.Plan)
    commit = records.read_record(root / "plan_commit.json", records.PlanCommit)
    with assigned(gpus, m.previous_uuid(folder)) as gpu:
        turn = GpuTurn(gpu)
        with progress(f"{study.name}: compile for {gpu.name}") as report:
            precompile(
                problem_job(study),
                {w.name: w.axes for w in study.workloads},
                {a: study.arm(a).config for a in arms},
                gpu,
                study.file.limits.compile_s * len(study.workloads),
                report,
            )
        rest = (turn, l2_bytes(gpu), run_versions(gpu))
        with progress(f"{study.name}: measure on {gpu.name}") as report:
            found = m.measure(
                study, plan, commit, arms, folder, *rest, report, enough=lambda r: _enough(study, r)
            )
        write_index(
            root / "measurement" / f"{slug}.json", {n: r.gpu_seconds for n, r in found.items()}
        )
        winner = picked(study, root, slug, arms)
        again: Records = {}
        if winner:
            with progress(f"{study.name}: {winner} again, in fresh processes") as report:
                again = m.measure(
                    study,
                    plan,
                    commit,
                    [BASELINE, winner],
                    root / "confirmation" / slug,
                    *rest,
                    report,
                    first_process=m.CONFIRM_PROCESSES,
                    workloads=study.selects(study.file.decision.improve),
                )
    taken = [*found.values(), *again.values()]
    held, busy = sum(r.held_seconds for r in taken), sum(r.busy_seconds for r in taken)
    dropped = sum(r.dropped for m in taken for r in m.replicates)
    share = f" ({busy / held:.0%})" if held else ""
    print(
        f"{study.name}: {gpu.name} {gpu.uuid}: {len(arms)} arms timed, GPU held {held:.1f} s, busy"
        f" {busy:.1f} s{share}, {dropped} blocks dropped; {winner or 'no arm'} confirmed"
    )


def right_arms(study: Study, root: Path, slug: str, target: str) -> list[str]:
    """Arms that fit, have code of their own, and are right on the device."""
    return [
        name
        for name in surviving(root, target, study)
        if correct(root / "correctness" / slug / f"{name}.json")
    ]


def picked(study: Study, root: Path, slug: str, arms: list[str]) -> str | None:
    """The arm that the rule adopts, else the best of those timed at the workloads that decide."""
    from occupancy_probe.outcome import here

    found = next((d for d in here(study, root).verdict.devices if d.device == slug), None)
    if found is None:
        return None
    if found.picked:
        return found.picked
    improve = study.selects(study.file.decision.improve)
    ratios = {(r.arm, r.workload): r.ratio for r in found.results}
    means = {
        arm: math.fsum(math.log(ratios[arm, w] or 1.0) for w in improve)
        for arm in arms
        if arm not in (BASELINE, NULL) and all(ratios.get((arm, w)) for w in improve)
    }
    return min(means, key=lambda a: means[a], default=None)


def _enough(study: Study, found: Records) -> bool:
    from occupancy_probe.validate.statistics import all_decided, spent_alpha

    rule = study.file.decision
    alpha = spent_alpha(rule.alpha, study.file.measurement.stop.looks)
    fallen = {a for r in found.values() for a in r.disqualified}
    arms = {a for r in found.values() for x in r.replicates for a in x.arms} - {BASELINE, *fallen}
    samples = {w: r.replicates for w, r in found.items()}
    return all_decided(samples, sorted(arms), BASELINE, NULL, rule.margin, alpha)
