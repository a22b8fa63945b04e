"""Fails where an arm of the study's `must_fit` does not fit, with one line per target."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from occupancy_probe.exc import RecordError
from occupancy_probe.study import load_study

HELP = "fail where an arm that must fit does not"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> int:
    """See the module; 1 if one does not fit."""
    study, path = load_study(options.study), options.results / "feasibility.json"
    try:
        targets = json.loads(path.read_text(encoding="utf-8"))["targets"]
    except (OSError, ValueError, KeyError) as e:
        raise RecordError(f"{path}: {e}; `snakemake feasibility` makes it") from e
    failed = {name: t["must_fit_failed"] for name, t in targets.items() if t["must_fit_failed"]}
    for name, arms in failed.items():
        said = "; ".join(f"{arm} ({why})" for arm, why in arms.items())
        print(f"error: {study.name}: must fit on {name} and does not: {said}", file=sys.stderr)
    return 1 if failed else 0
