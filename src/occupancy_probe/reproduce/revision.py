"""Which commit is meant, and what it holds of which study."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from occupancy_probe.exc import RepositoryError
from occupancy_probe.repository import Repository, StudyCommit

_NUMBERED = re.compile(r"(?P<study>[A-Za-z0-9][A-Za-z0-9_.-]*)@(?P<n>\d+)")


@dataclass(frozen=True)
class Revision:
    """A commit and the study in it."""

    asked: str
    commit: str
    subject: str
    committed_at: str
    study: str
    study_file: str | None
    """Relative to the top; None where the study file lay outside of the repository."""
    has_workflow: bool
    """Whether it brings a Snakefile of its own."""
    devices: tuple[str, ...]
    """Devices with evidence."""
    notes: tuple[str, ...] = ()

    @property
    def results(self) -> str:
        """The study's folder of results, relative to the top."""
        return f"results/{self.study}"

    @property
    def short(self) -> str:
        return self.commit[:12]


def find_revision(repository: Repository, asked: str, study: str | None = None) -> Revision:
    """The revision ``asked`` for: a commit, a tag, a branch, or ``study@n`` as `studies` counts them.

    study: the one to take where the commit does not say it and holds several. RepositoryError where
    there is no such revision, or it holds no study.
    """
    commits = repository.study_commits()
    commit = _numbered(commits, asked) or repository.resolve(asked)
    files = repository.files_at(commit)
    trailers = repository.trailers(commit)
    name = _study_of(trailers.get("Study"), study, files, repository, commit)
    folder = f"results/{name}/evidence/"
    held = [f.removeprefix(folder).split("/", 1)[0] for f in files if f.startswith(folder)]
    notes = []
    if repository.shallow:
        notes.append(
            "this clone is shallow: a plan commit that it lacks cannot vouch for its samples; git fetch"
            " --unshallow"
        )
    if not repository.is_ancestor(commit):
        notes.append("HEAD does not descend from this commit: another branch, or history rewritten")
    if trailers.get("Study") and "Stage" not in trailers:
        notes.append(
            "the commit has no Stage trailer: made by hand, or before trailers were written"
        )
    return Revision(
        asked=asked,
        commit=commit,
        subject=str(repository.repo.commit(commit).summary),
        committed_at=repository.commit_time(commit),
        study=name,
        study_file=_study_file(name, files, repository, commit),
        has_workflow="Snakefile" in files,
        devices=tuple(dict.fromkeys(held)),
        notes=tuple(notes),
    )


def numbered(commits: list[StudyCommit]) -> list[tuple[str, StudyCommit]]:
    """Every commit with its name ``study@n``, counted per study from 1, oldest first."""
    counts: dict[str, int] = {}
    named = []
    for made in commits:
        counts[made.study] = counts.get(made.study, 0) + 1
        named.append((f"{made.study}@{counts[made.study]}", made))
    return named


def _numbered(commits: list[StudyCommit], asked: str) -> str | None:
    match = _NUMBERED.fullmatch(asked)
    if match is None:
        return None
    names = dict(numbered(commits))
    if asked in names:
        return names[asked].commit
    known = {c.study for c in commits}
    if match["study"] not in known:
        return None  # perhaps a tag that looks like it
    count = sum(c.study == match["study"] for c in commits)
    raise RepositoryError(
        f"{asked}: {match['study']} has {count} commits here, {match['study']}@1 to"
        f" {match['study']}@{count}; `snakemake studies` lists them"
    )


def _study_of(
    said: str | None, wanted: str | None, files: list[str], repository: Repository, commit: str
) -> str:
    held = sorted(
        m[1] for f in files if (m := re.fullmatch(r"results/([^/]+)/plan\.json", f)) is not None
    )
    if said and said in held:
        return said
    if len(held) == 1:
        return held[0]
    if wanted in held:
        return str(wanted)
    if not held:
        raise RepositoryError(
            f"{commit[:12]} holds no plan of any study (no results/*/plan.json): older than the first"
            " plan, or of another project; `snakemake studies` lists what can be reproduced"
        )
    raise RepositoryError(
        f"{commit[:12]} holds several studies ({', '.join(held)}) and its message names none; add"
        " --config study=NAME"
    )


def _study_file(name: str, files: list[str], repository: Repository, commit: str) -> str | None:
    candidates = [f for f in files if f.endswith((".yaml", ".yml"))]
    for path in sorted(candidates, key=lambda f: (f != f"studies/{name}.yaml", f)):
        text = repository.text_at(commit, path) or ""
        if name not in text:
            continue
        try:
            content = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(content, dict) and content.get("name") == name and "hypothesis" in content:
            return path
    return None
