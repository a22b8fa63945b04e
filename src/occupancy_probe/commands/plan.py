"""plan.json and the document, committed; plan_commit.json says where."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.study import load_study

HELP = "render the plan and see that a commit holds it"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--templates", type=Path, default=Path("templates"))
    parser.add_argument("--no-commit", action="store_true", help="leave history alone")
    parser.add_argument("--allow-dirty", action="store_true", help="commit though inputs are not")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.plan.commit import commit_plan
    from occupancy_probe.plan.document import render_document
    from occupancy_probe.plan.freeze import freeze
    from occupancy_probe.templating import render, render_string

    study = load_study(options.study)
    frozen = freeze(study, records.read_record(options.results / "trace.json", records.Trace))
    subject = render_string(study.file.commit.plan, study=study.file)
    message = render(options.templates, "commit_plan.txt.j2", subject=subject, plan=frozen)
    found = commit_plan(
        study,
        frozen,
        render_document(frozen, options.templates),
        message,
        options.results,
        commit=not options.no_commit,
        allow_dirty=options.allow_dirty,
    )
    records.write_record(options.results / "plan_commit.json", found)
    print(
        f"{study.name}: plan {frozen.plan_hash[:12]} {found.note} ({found.commit or 'no commit'})"
    )
