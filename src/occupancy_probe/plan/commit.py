"""Put the plan into history once: find it where it stands, or commit it path-limited."""

from __future__ import annotations

import json
from pathlib import Path

from occupancy_probe.exc import RepositoryError
from occupancy_probe.plan.freeze import hash_of, holds_its_hash
from occupancy_probe.records import Plan, PlanCommit, to_json, write_record, write_text
from occupancy_probe.repository import Repository
from occupancy_probe.study import Study

UNCOMMITTED = "Uncommitted-Inputs"
"""Trailer of a plan that was committed by override, before its inputs were: never a pre-registration."""


def committed_plan(folder: Path) -> Plan | None:
    """The plan that HEAD holds for this study, which a new one would amend; None without one."""
    try:
        text = Repository.around(Path.cwd()).committed_text(folder / "plan.json")
    except RepositoryError:
        return None
    return plan_in(text)


def plan_in(text: str | None) -> Plan | None:
    """The plan in ``text``; None where it is none, or was edited under its old hash."""
    if text is None:
        return None
    try:
        content = json.loads(text)
        found = Plan.model_validate(content)
    except (ValueError, RecursionError):
        return None
    return found if holds_its_hash(content) else None


def commit_plan(
    study: Study,
    plan: Plan,
    document: str,
    message: str,
    folder: Path,
    commit: bool = True,
    allow_dirty: bool = False,
) -> PlanCommit:
    """Write plan.json and the document under ``folder`` and see that a commit holds them.

    document: the rendered plan with its empty table. message: subject, body, trailers.
    commit=False leaves history alone; allow_dirty=True commits although the study's inputs are not
    committed. Both make the study exploratory, and the record says so.
    """
    plan_file, document_file = folder / "plan.json", folder / f"{plan.document}.md"
    if not commit:
        _write(plan, document, plan_file, document_file)
        return _found(plan, None, None, False, "commits are switched off (commit=False)")
    repository = Repository.around(Path.cwd())
    standing = plan_in(repository.committed_text(plan_file))
    if standing is not None and hash_of(standing) == plan.plan_hash:
        if plan_file.exists() and _hash_of(plan_file.read_text(encoding="utf-8")) != plan.plan_hash:
            raise _dirty(plan_file)
        for path, text in ((plan_file, to_json(plan)), (document_file, document)):
            if not path.exists():
                write_text(path, repository.committed_text(path) or text)
        return _standing(standing, plan_file, repository)
    inputs = list(study.inputs)
    uncommitted = repository.dirty(inputs)
    if uncommitted and not allow_dirty:
        raise RepositoryError(
            f"{study.path}: the plan cannot be committed before its inputs: {', '.join(uncommitted)}"
            " not committed; commit them, or pass --config allow_dirty=True (commits the plan all the"
            " same) or commit=False (commits nothing); either makes the results exploratory"
        )
    for path in (plan_file, document_file):
        known = repository.committed_text(path)
        if path.exists() and path.read_text(encoding="utf-8") not in (
            known,
            document,
            to_json(plan),
        ):
            raise _dirty(path)
    before = {p: p.read_bytes() if p.exists() else None for p in (plan_file, document_file)}
    try:
        _write(plan, document, plan_file, document_file)
        if uncommitted:
            message = f"{message.rstrip()}\n{UNCOMMITTED}: {', '.join(uncommitted)}\n"
        made = repository.commit([plan_file, document_file], message)
    except BaseException:
        for path, content in before.items():
            path.write_bytes(content) if content is not None else path.unlink(missing_ok=True)
        raise
    note = (
        f"inputs were not committed: {', '.join(uncommitted)}" if uncommitted else "committed now"
    )
    return _found(plan, made, repository.commit_time(made), not uncommitted, note)


def _standing(plan: Plan, plan_file: Path, repository: Repository) -> PlanCommit:
    """Where a plan that HEAD holds was committed, and whether that counts."""
    found = repository.last_commit(plan_file)
    assert found is not None
    trailers = repository.trailers(found)
    override, borderline = trailers.get(UNCOMMITTED), repository.cut_off_at(found)
    counts, note = True, "found in history"
    if override:
        counts, note = False, f"inputs were not committed: {override}"
    elif borderline and trailers.get("Plan-Hash") != plan.plan_hash:
        counts, note = False, f"the commit that made this plan is missing{repository.lacking()}"
    return _found(plan, found, repository.commit_time(found), counts, note)


def _write(plan: Plan, document: str, plan_file: Path, document_file: Path) -> None:
    write_record(plan_file, plan)
    write_text(document_file, document)


def _found(
    plan: Plan, commit: str | None, at: str | None, preregistered: bool, note: str
) -> PlanCommit:
    return PlanCommit(
        study=plan.study,
        plan_hash=plan.plan_hash,
        commit=commit,
        committed_at=at,
        preregistered=preregistered,
        note=note,
        depends={"plan": plan.plan_hash},
    )


def _hash_of(text: str | None) -> str | None:
    """Today's hash of the plan in ``text``; None where it is none, or was edited under its old hash."""
    found = plan_in(text)
    return hash_of(found) if found else None


def _dirty(path: Path) -> RepositoryError:
    return RepositoryError(
        f"{path}: edited by hand and not committed; a plan is made from its study: put the change"
        f" there, then `git checkout -- {path}`"
    )
