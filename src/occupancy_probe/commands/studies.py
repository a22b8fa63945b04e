"""Every study with its past commits: plans, amendments, evidence, and what they found."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from occupancy_probe.repository import Repository, StudyCommit

HELP = "list studies and their past commits"
STUDY = False


def add_arguments(parser: ArgumentParser) -> None:
    """Where to look."""
    parser.add_argument("--repository", type=Path, default=Path())
    parser.add_argument("--studies", type=Path, default=Path("studies"))


def run(options: Namespace) -> None:
    """See the module."""
    from occupancy_probe.exc import ProbeError
    from occupancy_probe.repository import Repository
    from occupancy_probe.reproduce.revision import numbered
    from occupancy_probe.reproduce.show import show_studies
    from occupancy_probe.study import load_study

    repository = Repository.around(options.repository)
    commits = numbered(repository.study_commits())
    show_studies(
        [(name, c, _device(repository, c), _verdict(repository, c)) for name, c in commits]
    )
    known, present = {c.study for _, c in commits}, set()
    for path in sorted(options.studies.glob("*.y*ml")):
        try:
            present.add(load_study(path).name)
        except ProbeError as e:
            print(f"note: {str(e).splitlines()[0]}")
    if new := sorted(present - known):
        print(f"without a commit yet: {', '.join(new)}")
    if options.studies.is_dir() and (old := sorted(known - present)):
        print(
            f"in history, but no study file here has that name (renamed, removed): {', '.join(old)}"
        )
    if repository.shallow:
        print(
            "this clone is shallow: older plans, amendments and evidence are missing from this list,"
            " and verdicts whose plan commit is missing count as exploratory; git fetch --unshallow"
        )
    print("try one again: snakemake reproduce --config rev=STUDY@N")


def _device(repository: Repository, made: StudyCommit) -> str:
    """Device and Triton: from the trailers, or from the samples where those do not say it."""
    device = made.trailers.get("Device")
    if device is None:
        return ""
    triton = made.trailers.get("Triton")
    if triton is None:
        versions = _first_sample(repository, made, device).get("versions") or {}
        triton = versions.get("triton", "not recorded")
    return f"{device}, {triton}"


def _verdict(repository: Repository, made: StudyCommit) -> str:
    """The decision: from the trailer, or from the document that was published with the samples."""
    if made.stage == "amendment":
        why = next(
            (x[5:] for x in made.body.splitlines() if x.startswith("Why: ")), "no reason given"
        )
        changes = sum(x.startswith("- ") for x in made.body.splitlines())
        counted = f"{changes} change{'s' if changes != 1 else ''}"
        return f"{why} ({counted}: git show {made.commit[:12]})"
    if made.stage != "validate":
        return ""
    if said := made.trailers.get("Decision"):
        return said
    folder = f"results/{made.study}"
    for name in repository.files_at(made.commit, folder):
        if name.endswith(".md"):
            text = repository.text_at(made.commit, name) or ""
            decisions = [x for x in text.splitlines() if x.startswith("**Decision:** ")]
            if decisions:
                return "; ".join(x.removeprefix("**Decision:** ") for x in decisions)
    return "not recorded"


def _first_sample(repository: Repository, made: StudyCommit, device: str) -> dict[str, Any]:
    folder = f"results/{made.study}/evidence/{device}/measurement"
    for name in repository.files_at(made.commit, folder):
        try:
            content = json.loads(repository.text_at(made.commit, name) or "")
        except ValueError:
            continue
        if isinstance(content, dict):
            return content
    return {}
