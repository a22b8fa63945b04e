"""feasibility.json over all targets, and one line per target."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from occupancy_probe import records
from occupancy_probe.exc import RecordError
from occupancy_probe.study import load_study

HELP = "say per target what fits"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""


def run(options: Namespace) -> None:
    """See the module."""
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
    failed = any(t["must_fit_failed"] for t in targets.values())
    content = {"study": study.name, "must_fit": "failed" if failed else "met", "targets": targets}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    records.write_text(options.results / "feasibility.json", text)
