"""Commits hold exactly what they should, and the user's index and work tree stay as they were."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import git

from occupancy_probe.exc import RepositoryError
from occupancy_probe.repository import Repository


def state(folder: Path) -> tuple[str, str, str]:
    """All that a user would see as changed: status, staged and unstaged differences."""
    return (
        git(folder, "status", "--porcelain"),
        git(folder, "diff", "--cached"),
        git(folder, "diff"),
    )


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_H6_a_commit_holds_its_paths_and_leaves_the_rest(work):
    git(work, "mv", "file", "renamed")
    write(work, "staged", "a\n")
    git(work, "add", "staged")
    write(work, "staged", "a\nb\n")
    write(work, "untracked", "x\n")
    before = state(work)
    plan = write(work, "results/s/plan.json", "{}\n")
    made = Repository.around(work).commit([plan], "docs: plan\n\nPlan-Hash: 1\n")
    assert state(work) == before
    assert git(work, "show", "--name-only", "--format=", made).split() == ["results/s/plan.json"]
    assert git(work, "log", "-1", "--format=%B").startswith("docs: plan\n\nPlan-Hash: 1")
    assert git(work, "rev-parse", "HEAD").strip() == made


def test_H6_no_identity(work):
    git(work, "config", "--unset", "user.name")
    git(work, "config", "--unset", "user.email")
    git(work, "config", "user.useConfigOnly", "true")
    plan, before = write(work, "plan.json", "{}\n"), state(work)
    with pytest.raises(RepositoryError, match=r"no identity here.*git config user\.name"):
        Repository.around(work).commit([plan], "x")
    assert state(work)[1:] == before[1:]


def test_H6_detached_head(work):
    git(work, "checkout", "--quiet", "--detach")
    plan = write(work, "plan.json", "{}\n")
    with pytest.raises(RepositoryError, match="HEAD is detached"):
        Repository.around(work).commit([plan], "x")


def test_H6_merge_in_progress(work):
    git(work, "switch", "--quiet", "-c", "other")
    write(work, "file", "two\n")
    git(work, "commit", "--quiet", "-am", "two")
    git(work, "switch", "--quiet", "main")
    write(work, "file", "three\n")
    git(work, "commit", "--quiet", "-am", "three")
    merge = subprocess.run(["git", "merge", "other"], cwd=work, capture_output=True)
    assert merge.returncode != 0
    plan, before = write(work, "plan.json", "{}\n"), state(work)
    with pytest.raises(RepositoryError, match="a merge is in progress"):
        Repository.around(work).commit([plan], "x")
    assert state(work) == before


def test_H6_rebase_in_progress(work):
    git(work, "switch", "--quiet", "-c", "other")
    write(work, "file", "two\n")
    git(work, "commit", "--quiet", "-am", "two")
    git(work, "switch", "--quiet", "main")
    write(work, "file", "three\n")
    git(work, "commit", "--quiet", "-am", "three")
    rebase = subprocess.run(["git", "rebase", "other"], cwd=work, capture_output=True)
    assert rebase.returncode != 0
    plan = write(work, "plan.json", "{}\n")
    with pytest.raises(RepositoryError, match=r"in progress|detached"):
        Repository.around(work).commit([plan], "x")


def test_H6_shallow_clone(work, tmp_path):
    write(work, "file", "two\n")
    git(work, "commit", "--quiet", "-am", "two")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", work.as_uri(), str(clone))
    git(clone, "config", "user.name", "Ada")
    git(clone, "config", "user.email", "ada@example.org")
    repository = Repository.around(clone)
    assert repository.shallow
    assert not Repository.around(work).shallow
    made = repository.commit([write(clone, "plan.json", "{}\n")], "plan")
    assert repository.is_ancestor(made)
    older = git(work, "rev-parse", "HEAD~1").strip()
    assert Repository.around(work).is_ancestor(older)
    assert not repository.is_ancestor(older)


def test_no_repository(tmp_path, own_git):
    with pytest.raises(RepositoryError, match=r"not inside a git repository.*commit=False"):
        Repository.around(tmp_path)


def test_a_repository_without_commits(own_git, tmp_path):
    git(tmp_path, "init", "--quiet", "new")
    new = tmp_path / "new"
    git(new, "config", "user.name", "Ada")
    git(new, "config", "user.email", "ada@example.org")
    repository = Repository.around(new)
    plan = write(new, "plan.json", "{}\n")
    assert repository.committed_text(plan) is None
    assert not repository.is_ancestor("HEAD")
    made = repository.commit([plan], "plan")
    assert repository.last_commit(plan) == made


def test_a_hook_that_refuses_leaves_the_index(work):
    hook = write(work, ".git/hooks/pre-commit", "#!/bin/sh\necho no plans today >&2\nexit 1\n")
    hook.chmod(0o755)
    write(work, "staged", "a\n")
    git(work, "add", "staged")
    plan = write(work, "plan.json", "{}\n")
    before, head = state(work), git(work, "rev-parse", "HEAD")
    with pytest.raises(RepositoryError, match="no plans today"):
        Repository.around(work).commit([plan], "x")
    assert state(work) == before
    assert git(work, "rev-parse", "HEAD") == head
    assert not (work / ".git" / "OCCUPANCY_PROBE_MSG").exists()


def test_an_ignored_path_is_refused_with_gits_words(work):
    write(work, ".gitignore", "*.json\n")
    with pytest.raises(RepositoryError, match="ignored"):
        Repository.around(work).commit([write(work, "plan.json", "{}\n")], "x")


def test_waits_for_another_git_process(work):
    lock = write(work, ".git/index.lock", "")
    plan = write(work, "plan.json", "{}\n")
    release = subprocess.Popen(["sh", "-c", f"sleep 0.4; rm '{lock}'"])
    try:
        assert Repository.around(work).commit([plan], "plan")
    finally:
        release.wait()


def test_dirty_names_what_no_commit_holds(work, tmp_path):
    repository = Repository.around(work)
    kernel = work / "kernels"
    assert repository.dirty([work / "file", kernel]) == []
    write(work, "file", "changed\n")
    write(work, "kernels/deep/kernel.py", "x = 1\n")
    write(work, "elsewhere", "x\n")
    assert sorted(repository.dirty([work / "file", kernel])) == ["file", "kernels/deep/kernel.py"]
    assert repository.dirty([tmp_path / "outside"]) == []


def test_dirty_names_a_file_that_was_renamed(work):
    git(work, "mv", "file", "renamed")
    assert sorted(Repository.around(work).dirty([work])) == ["file", "renamed"]


def test_dirty_takes_names_as_they_are(work):
    write(work, "a b\tü.py", "x\n")
    assert Repository.around(work).dirty([work]) == ["a b\tü.py"]


def test_committed_text_is_heads_and_keeps_its_last_newline(work):
    repository = Repository.around(work)
    write(work, "file", "changed\n")
    assert repository.committed_text(work / "file") == "one\n"
    assert repository.committed_text(work / "none") is None


def test_a_path_outside_of_the_repository(work, tmp_path):
    with pytest.raises(RepositoryError, match="outside of the repository"):
        Repository.around(work).committed_text(tmp_path / "plan.json")


def test_ancestors(work):
    repository = Repository.around(work)
    first = git(work, "rev-parse", "HEAD").strip()
    git(work, "switch", "--quiet", "-c", "side")
    write(work, "file", "two\n")
    git(work, "commit", "--quiet", "-am", "two")
    side = git(work, "rev-parse", "HEAD").strip()
    git(work, "switch", "--quiet", "main")
    assert repository.is_ancestor(first)
    assert not repository.is_ancestor(side)
    assert not repository.is_ancestor("0" * 40)
    assert not repository.is_ancestor("no such name")


def test_times_are_utc(work):
    environment = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+05:00"}
    write(work, "file", "two\n")
    subprocess.run(["git", "commit", "-qam", "two"], cwd=work, env=environment, check=True)
    repository = Repository.around(work)
    assert repository.commit_time("HEAD") == "2026-01-01T22:04:05+00:00"


def test_a_linked_work_tree(work, tmp_path):
    other = tmp_path / "linked"
    git(work, "worktree", "add", "--quiet", "-b", "linked", str(other))
    made = Repository.around(other).commit([write(other, "plan.json", "{}\n")], "plan")
    assert git(other, "rev-parse", "HEAD").strip() == made
    assert git(work, "rev-parse", "linked").strip() == made


def test_jobs_that_commit_at_the_same_time_wait_for_one_another(work):
    names = [f"plan{i}.json" for i in range(8)]

    def commit(name: str) -> str:
        return Repository.around(work).commit([write(work, name, f"{name}\n")], f"plan {name}")

    with ThreadPoolExecutor(len(names)) as pool:
        made = list(pool.map(commit, names))
    for name, commit_hash in zip(names, made, strict=True):
        assert git(work, "show", "--format=%s", "--name-only", commit_hash).split() == [
            "plan",
            name,
            name,
        ]
    assert git(work, "status", "--porcelain") == ""
