"""Copy a device's records to evidence/ and commit them with the filled document and its charts."""

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
    parser.add_argument("--device", help="whose records; default: the GPU here")


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe import outcome
    from occupancy_probe.execute.device import require_gpu
    from occupancy_probe.repository import Repository
    from occupancy_probe.templating import render, render_string
    from occupancy_probe.validate.publish import VERDICT, gather

    study, results = load_study(options.study), options.results
    device = options.device or require_gpu().slug
    plan = records.read_record(results / "plan.json", records.Plan)
    repository = Repository.around(Path.cwd())
    faulty = outcome.plan_fault(results, plan)
    name = gather(results, device, plan, study.launch_digest, faulty)[0].device_name
    found = outcome.published(study, results)
    said = outcome.of_device(found, device)
    records.write_record(results / "evidence" / device / VERDICT, said)
    documents = outcome.fill_document(study, results, options.templates, found)
    subject = render_string(study.file.commit.evidence, study=study.file, device=name)
    message = render(
        options.templates,
        "commit_evidence.txt.j2",
        subject=subject,
        plan=plan,
        device=device,
        verdict=said.devices[0],
    )
    paths = [results / "evidence" / device, *documents]
    commit = repository.commit(paths, message) if repository.dirty(paths) else None
    write_index(results / "published" / f"{device}.json", {"commit": commit or "nothing new"})
    print(f"{study.name}: evidence of {name}: {commit or 'already published'}")
