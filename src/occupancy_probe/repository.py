"""The one place that touches git: path-limited commits and questions about history (GitPython)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TypeVar

import git

from occupancy_probe.exc import RepositoryError

T = TypeVar("T")
_UTC = UTC


@dataclass(frozen=True)
class Repository:
    """The git repository that holds a results folder."""

    repo: git.Repo

    @classmethod
    def around(cls, path: Path) -> Repository:
        """The repository that contains ``path``; RepositoryError if there is none."""
        try:
            return cls(git.Repo(path, search_parent_directories=True))
        except (git.InvalidGitRepositoryError, git.NoSuchPathError) as e:
            raise RepositoryError(
                f"{path}: not inside a git repository; run `git init` there, or go on without"
                " commits: --config commit=False (results are then exploratory)"
            ) from e

    @property
    def root(self) -> Path:
        """Top of the work tree."""
        return Path(self.repo.working_dir)

    def contains(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.root.resolve())

    def dirty(self, paths: Sequence[Path]) -> list[str]:
        """Those of ``paths`` (files or folders) with changes that no commit holds."""
        inside = [str(p.resolve()) for p in paths if self.contains(p)]
        if not inside:
            return []
        status = self.repo.git.status(
            "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *inside
        )
        return [entry[3:] for entry in status.split("\0") if len(entry) > 3]

    def committed_text(self, path: Path) -> str | None:
        """Content of ``path`` at HEAD, None where HEAD does not hold it."""
        if not self.contains(path):
            raise RepositoryError(
                f"{path}: outside of the repository {self.root}; run in the one that is to hold the"
                " results, or go on without commits: --config commit=False"
            )
        name = path.resolve().relative_to(self.root.resolve()).as_posix()
        try:
            return str(self.repo.git.show(f"HEAD:{name}", strip_newline_in_stdout=False))
        except git.GitCommandError:
            return None

    def last_commit(self, path: Path) -> str | None:
        """Hash of the commit that last touched ``path``."""
        return self.repo.git.log("-1", "--format=%H", "--", str(path.resolve())) or None

    def commit_time(self, commit: str) -> str:
        """Committer time of ``commit``, ISO 8601 in UTC."""
        return self.repo.commit(commit).committed_datetime.astimezone(_UTC).isoformat()

    def is_ancestor(self, commit: str) -> bool:
        """Whether ``commit`` is HEAD or an ancestor of it; False where it is not in this clone."""
        try:
            return self.repo.is_ancestor(self.repo.commit(commit), self.repo.head.commit)
        except (git.GitCommandError, git.BadName, ValueError):
            return False

    @property
    def shallow(self) -> bool:
        """Whether older history is missing from this clone."""
        return bool(self.repo.git.rev_parse("--is-shallow-repository") == "true")

    def commit(self, paths: Sequence[Path], message: str) -> str:
        """Commit exactly ``paths``, leaving everything else in index and work tree as it was.

        Returns the commit's hash. RepositoryError says what git needs: an identity, a branch, the
        end of a merge.
        """
        self._require_ready()
        names = [str(p.resolve()) for p in paths]
        message_file = Path(self.repo.git_dir) / "OCCUPANCY_PROBE_MSG"
        message_file.write_text(message, encoding="utf-8")
        try:
            _retried(lambda: self.repo.git.add("--", *names))
            _retried(
                lambda: self.repo.git.commit(
                    "--quiet", "--only", f"--file={message_file}", "--", *names
                )
            )
        except git.GitCommandError as e:
            self.repo.git.reset("--quiet", "--", *names)
            raise RepositoryError(
                f"git commit failed: {e.stderr.strip() or e.stdout.strip()}"
            ) from e
        finally:
            message_file.unlink(missing_ok=True)
        return self.repo.head.commit.hexsha

    def _require_ready(self) -> None:
        try:
            self.repo.git.var("GIT_COMMITTER_IDENT")
        except git.GitCommandError as e:
            raise RepositoryError(
                "git has no identity here; set one: git config user.name NAME && git config"
                " user.email ADDRESS"
            ) from e
        if self.repo.head.is_detached:
            raise RepositoryError(
                "HEAD is detached: a commit would be lost; git switch to a branch"
            )
        folder = Path(self.repo.git_dir)
        for state, words in (
            ("MERGE_HEAD", "a merge"),
            ("rebase-merge", "a rebase"),
            ("rebase-apply", "a rebase"),
            ("CHERRY_PICK_HEAD", "a cherry-pick"),
        ):
            if (folder / state).exists():
                raise RepositoryError(f"{words} is in progress; finish or abort it, then run again")


def _retried(action: Callable[[], T]) -> T:
    """Run a git command again while another git process holds the index lock."""
    for _ in range(50):
        try:
            return action()
        except git.GitCommandError as e:
            if "index.lock" not in str(e.stderr):
                raise
            time.sleep(0.1)
    return action()
