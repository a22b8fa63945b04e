"""feasibility.json over all targets, one line per target; fails where an arm that must fit does not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.exc import RecordError
from occupancy_probe.study import load_study

HELP = "say per target what fits, and fail where an arm that must fit does not"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> int:
    """See the module; 1 if an arm of the study's `must_fit` does not fit."""
    from occupancy_probe.research.matrix import one_line

    study = load_study(options.study)
    targets = {}
    for name in study.file.targets:
        path = options.results / "feasibility" / f"{name}.json"
        try:
            targets[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise RecordError(f"{path}: {e}; compile for {name} first") from e
        print(f"{study.name}: {one_line(targets[name])}")
    failed = {n: t["must_fit_failed"] for n, t in targets.items() if t["must_fit_failed"]}
    for name, arms in failed.items():
        said = "; ".join(f"{arm} ({why})" for arm, why in arms.items())
        print(f"error: {study.name}: must fit on {name} and does not: {said}", file=sys.stderr)
    content = {"study": study.name, "must_fit": "failed" if failed else "met", "targets": targets}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    records.write_text(options.results / "feasibility.json", text)
    return 1 if failed else 0
