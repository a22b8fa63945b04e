"""Put the plan into history once: find it where it stands, or commit it path-limited."""

from __future__ import annotations

import json
from pathlib import Path

from occupancy_probe.exc import RepositoryError
from occupancy_probe.plan.freeze import hash_of
from occupancy_probe.records import Plan, PlanCommit, to_json, write_record, write_text
from occupancy_probe.repository import Repository
from occupancy_probe.study import Study


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
    if _hash_of(repository.committed_text(plan_file)) == plan.plan_hash:
        if plan_file.exists() and _hash_of(plan_file.read_text(encoding="utf-8")) != plan.plan_hash:
            raise _dirty(plan_file)
        if not plan_file.exists():
            write_record(plan_file, plan)
        if not document_file.exists():
            write_text(document_file, repository.committed_text(document_file) or document)
        found = repository.last_commit(plan_file)
        assert found is not None
        return _found(plan, found, repository.commit_time(found), True, "found in history")
    inputs = [study.path, study.kernel_folder]
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
        made = repository.commit([plan_file, document_file], message)
    except BaseException:
        for path, content in before.items():
            path.write_bytes(content) if content is not None else path.unlink(missing_ok=True)
        raise
    note = (
        f"inputs were not committed: {', '.join(uncommitted)}" if uncommitted else "committed now"
    )
    return _found(plan, made, repository.commit_time(made), not uncommitted, note)


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
    """Hash of the plan in ``text``; None where it is no plan, or was edited under its old hash."""
    if text is None:
        return None
    try:
        found = Plan.model_validate(json.loads(text))
    except ValueError:
        return None
    return found.plan_hash if found.plan_hash == hash_of(found) else None


def _dirty(path: Path) -> RepositoryError:
    return RepositoryError(
        f"{path}: edited by hand and not committed; a plan is made from its study: put the change"
        f" there, then `git checkout -- {path}`"
    )
