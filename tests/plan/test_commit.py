"""The plan is put into history once, alone, and only on top of committed inputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from conftest import FIXTURES, copy_fixture, git

from occupancy_probe.exc import RepositoryError
from occupancy_probe.plan.commit import commit_plan
from occupancy_probe.plan.freeze import freeze
from occupancy_probe.records import Plan, read_record, to_json
from occupancy_probe.study import load_study

DOCUMENT = "# Tiny A/B\n\n| arm | r4 |\n"
MESSAGE = "docs(tiny): A/B plan\n\nPlan-Hash: x\n"


@pytest.fixture
def place(work, monkeypatch, trace_of):
    """A repository with the tiny study committed, `plan` and `commit(…)` for it."""
    study_file = copy_fixture("tiny", work)
    git(work, "add", ".")
    git(work, "commit", "--quiet", "-m", "study")
    monkeypatch.chdir(work)
    study = load_study(study_file)
    plan = freeze(study, trace_of(FIXTURES / "tiny.yaml"))
    folder = work / "results" / "tiny"

    def commit(plan=plan, document=DOCUMENT, **options):
        return commit_plan(study, plan, document, MESSAGE, folder, **options)

    return SimpleNamespace(
        work=work,
        study=study_file,
        plan=plan,
        folder=folder,
        plan_file=folder / "plan.json",
        document=folder / "TINY_AB.md",
        commit=commit,
        count=lambda: int(git(work, "rev-list", "--count", "HEAD")),
    )


def edited(place):
    """The plan with another decision, frozen properly."""
    from occupancy_probe.plan.freeze import hash_of

    plan = place.plan.model_copy(update={"title": "Another"})
    return plan.model_copy(update={"plan_hash": hash_of(plan)})


def test_the_commit_holds_plan_and_document_and_nothing_else(place):
    found = place.commit()
    assert found.preregistered
    assert found.commit == git(place.work, "rev-parse", "HEAD").strip()
    assert found.committed_at.endswith("+00:00")
    names = git(place.work, "show", "--name-only", "--format=", "HEAD").split()
    assert sorted(names) == ["results/tiny/TINY_AB.md", "results/tiny/plan.json"]
    assert git(place.work, "show", "HEAD:results/tiny/plan.json") == to_json(place.plan)
    assert git(place.work, "show", "HEAD:results/tiny/TINY_AB.md") == DOCUMENT
    assert git(place.work, "log", "-1", "--format=%B").strip() == MESSAGE.strip()
    assert git(place.work, "status", "--porcelain") == ""


def test_the_same_plan_is_never_committed_twice(place):
    first = place.commit()
    (place.work / "file").write_text("two\n")
    git(place.work, "commit", "--quiet", "-am", "unrelated")
    count = place.count()
    again = place.commit()
    assert place.count() == count
    assert (again.commit, again.committed_at) == (first.commit, first.committed_at)
    assert again.preregistered


def test_a_filled_document_does_not_make_a_new_plan(place):
    first = place.commit()
    place.document.write_text(DOCUMENT + "| baseline | 3.1 |\n")
    git(place.work, "commit", "--quiet", "-am", "evidence")
    place.document.write_text(DOCUMENT + "| baseline | 3.2 |\n")
    assert place.commit().commit == first.commit
    assert "3.2" in place.document.read_text()


def test_files_that_were_removed_come_back(place):
    first = place.commit()
    place.plan_file.unlink()
    place.document.unlink()
    assert place.commit().commit == first.commit
    assert read_record(place.plan_file, Plan) == place.plan
    assert place.document.read_text() == DOCUMENT


def test_another_plan_is_another_commit(place):
    first = place.commit()
    second = place.commit(plan=edited(place))
    assert second.commit != first.commit
    assert git(place.work, "rev-parse", "HEAD~1").strip() == first.commit


def test_H6_staged_and_unstaged_changes_stay_as_they_were(place):
    (place.work / "file").write_text("staged\n")
    (place.work / "new").write_text("staged\n")
    git(place.work, "add", "file", "new")
    (place.work / "file").write_text("staged\nunstaged\n")
    (place.work / "loose").write_text("untracked\n")

    def state():
        return (
            git(place.work, "status", "--porcelain"),
            git(place.work, "diff", "--cached"),
            git(place.work, "diff"),
        )

    before = state()
    place.commit()
    assert state() == before


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (["checkout", "--quiet", "--detach"], "HEAD is detached"),
        (["config", "user.name", ""], "no identity"),
    ],
)
def test_H6_refused_with_nothing_half_written(place, spoil, words):
    git(place.work, *spoil)
    with pytest.raises(RepositoryError, match=words):
        place.commit()
    assert not place.plan_file.exists()
    assert not place.document.exists()
    assert git(place.work, "status", "--porcelain") == ""


def test_nothing_half_written_after_a_hook_refused(place):
    first = place.commit()
    hook = place.work / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(RepositoryError, match="git commit failed"):
        place.commit(plan=edited(place), document="# Another\n")
    assert read_record(place.plan_file, Plan) == place.plan
    assert place.document.read_text() == DOCUMENT
    assert git(place.work, "status", "--porcelain") == ""
    assert git(place.work, "rev-parse", "HEAD").strip() == first.commit


def test_nothing_half_written_when_the_document_cannot_be_written(place):
    with pytest.raises(UnicodeEncodeError):
        place.commit(document="\ud800")
    assert not place.plan_file.exists()
    assert git(place.work, "status", "--porcelain") == ""


def test_no_repository(place, own_git, monkeypatch):
    monkeypatch.chdir(own_git)
    with pytest.raises(RepositoryError, match="not inside a git repository"):
        place.commit()
    assert not place.plan_file.exists()


def test_commits_switched_off_need_no_repository_and_are_exploratory(place, own_git, monkeypatch):
    monkeypatch.chdir(own_git)
    found = place.commit(commit=False)
    assert (found.commit, found.preregistered) == (None, False)
    assert "switched off" in found.note
    assert read_record(place.plan_file, Plan) == place.plan


@pytest.mark.parametrize("change", ["study", "kernel", "untracked"])
def test_uncommitted_inputs_are_refused_and_named(place, change):
    path = {
        "study": place.study,
        "kernel": place.work / "tiny" / "kernel.py",
        "untracked": place.work / "tiny" / "helper.py",
    }[change]
    path.write_text((path.read_text() if path.exists() else "") + "\n# edited\n")
    with pytest.raises(RepositoryError, match=rf"{path.name} not committed; .*allow_dirty=True"):
        place.commit()
    assert not place.plan_file.exists()
    found = place.commit(allow_dirty=True)
    assert found.commit == git(place.work, "rev-parse", "HEAD").strip()
    assert not found.preregistered
    assert f"inputs were not committed: {path.relative_to(place.work)}" in found.note
    assert "# edited" not in git(place.work, "show", "HEAD")


@pytest.mark.parametrize("before_commit", [True, False])
@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"title": "Tiny A/B"', '"title": "Tinier"'),
        lambda text: text.replace('"alpha": 0.05', '"alpha": 0.4'),
        lambda text: text[: len(text) // 2],
    ],
    ids=["title", "alpha", "truncated"],
)
def test_a_plan_edited_by_hand_is_refused(place, before_commit, edit):
    if before_commit:
        place.commit(commit=False)
    else:
        place.commit()
    text = edit(place.plan_file.read_text())
    assert text != to_json(place.plan)
    place.plan_file.write_text(text)
    with pytest.raises(RepositoryError, match=r"plan\.json: edited by hand"):
        place.commit()
    assert place.plan_file.read_text() == text


def test_H1_a_plan_edited_and_committed_is_not_taken_for_the_plan(place):
    first = place.commit()
    text = place.plan_file.read_text().replace('"alpha": 0.05', '"alpha": 0.4')
    place.plan_file.write_text(text)
    git(place.work, "commit", "--quiet", "-am", "a quiet change")
    found = place.commit()
    assert found.commit not in (first.commit, git(place.work, "rev-parse", "HEAD~1").strip())
    assert read_record(place.plan_file, Plan) == place.plan


def test_H6_shallow_clone(place, tmp_path, monkeypatch):
    first = place.commit()
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", place.work.as_uri(), str(clone))
    monkeypatch.chdir(clone)
    study = load_study(clone / "tiny.yaml")
    found = commit_plan(study, place.plan, DOCUMENT, MESSAGE, clone / "results" / "tiny")
    assert found.commit == first.commit
    assert git(clone, "rev-list", "--count", "HEAD").strip() == "1"
