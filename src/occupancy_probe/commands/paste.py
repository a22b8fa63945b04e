"""exports/: a pull request's text, and the samples in the formats of other tools."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "paste-ready text and the samples as T4, NVBench JSON and CSV"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--templates", type=Path, default=Path("templates"))


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.outcome import amendments_here, commit_to_check_out, here, is_published
    from occupancy_probe.validate.exports import list_pasted
    from occupancy_probe.validate.interchange import csv_text, t4_results, write_nvbench
    from occupancy_probe.validate.pull_request import planned_in, render_pull_request

    study = load_study(options.study)
    found = here(study, options.results)
    plan, exports = found.collected.plan, options.results / "exports"
    verdicts = {d.device: d for d in found.verdict.devices}
    for slug, device in found.collected.devices.items():
        folder, measured = exports / slug, device.measurements
        matrix = device.feasibility.get(verdicts[slug].target, {})
        for workload, measurement in measured.items():
            content = t4_results(plan, measurement, matrix, device.correctness)
            records.write_text(folder / "t4" / f"{workload}.json", json.dumps(content) + "\n")
        for arm in plan.arms:
            write_nvbench(folder / "nvbench", plan, arm.name, measured)
        if measured:
            text = csv_text(plan, verdicts[slug].results, measured)
            records.write_text(folder / "samples.csv", text)
    held = is_published(study, options.results, found.collected)
    text = render_pull_request(
        plan,
        found.verdict,
        options.templates,
        amendments_here(study.name),
        commit_to_check_out(study, planned_in(found.verdict)) if held else None,
    )
    records.write_text(exports / "pull_request.md", text)
    list_pasted(exports)
    print(f"{study.name}: {exports / 'pull_request.md'}")
