"""Copy this device's records to evidence/ and commit them with the filled document."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from occupancy_probe import records
from occupancy_probe.commands.shared import write_index
from occupancy_probe.study import load_study

HELP = "commit records and filled document as evidence"


def add_arguments(parser: ArgumentParser) -> None:
    """Options beside the study and its results."""
    parser.add_argument("--templates", type=Path, default=Path("templates"))


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.execute.device import require_gpu
    from occupancy_probe.outcome import fill_document, published
    from occupancy_probe.repository import Repository
    from occupancy_probe.templating import render, render_string
    from occupancy_probe.validate.publish import gather

    study, gpu = load_study(options.study), require_gpu()
    results: Path = options.results
    plan = records.read_record(results / "plan.json", records.Plan)
    gather(results, gpu.slug, plan, study.launch_digest)
    document = fill_document(study, results, options.templates, published(study, results))
    subject = render_string(study.file.commit.evidence, study=study.file, device=gpu.name)
    message = render(
        options.templates, "commit_evidence.txt.j2", subject=subject, plan=plan, device=gpu.slug
    )
    repository = Repository.around(Path.cwd())
    paths = [results / "evidence" / gpu.slug, document]
    commit = repository.commit(paths, message) if repository.dirty(paths) else None
    write_index(results / "published" / f"{gpu.slug}.json", {"commit": commit or "nothing new"})
    print(f"{study.name}: evidence of {gpu.name}: {commit or 'already published'}")
