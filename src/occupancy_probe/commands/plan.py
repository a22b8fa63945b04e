"""plan.json and the document, committed; plan_commit.json says where."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from occupancy_probe import records
from occupancy_probe.study import Study, load_study

HELP = "render the plan and see that a commit holds it"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--templates", type=Path, default=Path("templates"))
    parser.add_argument("--no-commit", action="store_true", help="leave history alone")
    parser.add_argument("--allow-dirty", action="store_true", help="commit though inputs are not")
    parser.add_argument("--amend", default="", metavar="WHY", help="why a committed plan changes")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.outcome import amendments_here
    from occupancy_probe.plan.amendments import NO_REASON, STAGE, Amendment
    from occupancy_probe.plan.commit import commit_plan, committed_plan
    from occupancy_probe.plan.difference import differences
    from occupancy_probe.plan.document import render_document
    from occupancy_probe.plan.freeze import freeze, hash_of
    from occupancy_probe.templating import render, render_string

    study = load_study(options.study)
    frozen = freeze(study, records.read_record(options.results / "trace.json", records.Trace))
    subject = render_string(study.file.commit.plan, study=study.file)
    amendments = amendments_here(study.name)
    amended: dict[str, Any] = {}
    standing = committed_plan(options.results)
    if standing is not None and hash_of(standing) != frozen.plan_hash:
        changes = differences(standing, frozen) or ["nothing in substance"]
        why = options.amend or NO_REASON
        amended = {"stage": STAGE, "why": why, "changes": changes, "amends": standing.plan_hash}
        amendments.append(Amendment(None, "", why, tuple(changes)))
        own = study.file.commit.amendment
        subject = render_string(own, study=study.file) if own else f"{subject} (amended)"
    message = render(
        options.templates, "commit_plan.txt.j2", subject=subject, plan=frozen, **amended
    )
    found = commit_plan(
        study,
        frozen,
        render_document(
            frozen, options.templates, amendments=amendments, expected=_expected(study)
        ),
        message,
        options.results,
        commit=not options.no_commit,
        allow_dirty=options.allow_dirty,
    )
    records.write_record(options.results / "plan_commit.json", found)
    print(
        f"{study.name}: plan {frozen.plan_hash[:12]} {found.note} ({found.commit or 'no commit'})"
    )


def _expected(study: Study) -> records.System | None:
    if study.file.throughput is None:
        return None
    from occupancy_probe.validate.system import expected_system  # scipy is slow

    return expected_system(study)
