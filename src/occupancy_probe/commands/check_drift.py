"""drift.json: the published feasibility of every device against the one made here."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "fail if an arm's verdict is no longer the published one"
CHANGED = 3


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> int:
    """See the module; 3 if any arm that fitted no longer does, or the other way round."""
    from occupancy_probe.outcome import published_drift
    from occupancy_probe.reproduce.drift import verdict_changes

    study = load_study(options.study)
    found = published_drift(study, options.results)
    figures = [
        f.model_copy(update={"where": f"{f.where}, {device}"})
        for device, part in found.items()
        for f in part
    ]
    record = records.PublishedDrift(
        study=study.name, depends={"launch": study.launch_digest}, figures=figures
    )
    records.write_record(options.results / "drift.json", record)
    changed = verdict_changes(figures)
    for line in changed:
        print(f"error: {study.name}: drift: {line}")
    moved = sum(f.outcome == "moved" for f in figures)
    print(
        f"{study.name}: drift from the published evidence: {len(figures)} arms compared,"
        f" {len(changed)} with another verdict, {moved} with other figures or code"
    )
    return CHANGED if changed else 0
