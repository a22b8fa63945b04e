"""The one place that touches git: path-limited commits and questions about history (GitPython)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import TypeVar

import git
from filelock import FileLock

from occupancy_probe.exc import RepositoryError

T = TypeVar("T")
_UTC = UTC


@dataclass(frozen=True)
class StudyCommit:
    """A commit that the workflow made: what its trailers say."""

    commit: str
    committed_at: str
    """Committer time, ISO 8601."""
    subject: str
    trailers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    in_history: bool = True
    """Whether HEAD descends from it; False: only another branch, a tag or a remote holds it."""

    @property
    def study(self) -> str:
        return self.trailers.get("Study", "")

    @property
    def stage(self) -> str:
        """``plan``, ``amendment`` or ``validate`` (evidence)."""
        return self.trailers.get("Stage", "")


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
        """Top of the work tree; of a bare repository, its own folder."""
        return Path(self.repo.working_dir or self.repo.git_dir)

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

    def resolve(self, revision: str) -> str:
        """Hash of the commit that ``revision`` (hash, tag, branch) names; RepositoryError if none."""
        if not revision or revision.startswith("-"):
            raise RepositoryError(
                f"{revision!r} names no revision; give a commit, a tag or STUDY@N"
            )
        try:
            return str(self.repo.git.rev_parse("--verify", "--quiet", f"{revision}^{{commit}}"))
        except git.GitCommandError as e:
            raise RepositoryError(
                f"{revision}: no such commit in {self.root}{self.lacking()}; `snakemake studies` lists"
                " the commits of every study"
            ) from e

    def lacking(self) -> str:
        """What a shallow clone does not have, and the remedy; empty for a whole one."""
        if not self.shallow:
            return ""
        return " (this clone is shallow: older commits are missing; git fetch --unshallow)"

    def text_at(self, commit: str, name: str) -> str | None:
        """Content of the file ``name`` (relative to the top) in ``commit``; None if it has none."""
        try:
            return str(self.repo.git.show(f"{commit}:{name}", strip_newline_in_stdout=False))
        except git.GitCommandError:
            return None

    def files_at(self, commit: str, folder: str = "") -> list[str]:
        """Names of all files that ``commit`` holds below ``folder``, relative to the top."""
        try:
            listed = self.repo.git.ls_tree(
                "-r", "-z", "--full-tree", "--name-only", commit, *([folder] if folder else [])
            )
        except git.GitCommandError as e:
            raise _damaged(commit, e) from e
        return [name for name in listed.split("\0") if name]

    def blobs_at(self, commit: str, *folders: str) -> dict[str, str]:
        """Hash of every file below ``folders`` in ``commit``, by name; empty where it has none."""
        try:
            listed = self.repo.git.ls_tree("-r", "-z", commit, "--", *folders)
        except git.GitCommandError as e:
            raise _damaged(commit, e) from e
        rows = (row.split("\t", 1) for row in listed.split("\0") if row)
        return {name: meta.split()[2] for meta, name in rows}

    def blobs_of(self, paths: Sequence[Path]) -> list[str]:
        """The hash that each file would have in a commit."""
        if not paths:
            return []
        return str(self.repo.git.hash_object(*(str(p.absolute()) for p in paths))).split()

    def name_of(self, path: Path) -> str:
        """``path`` relative to the top of the work tree, as git names it."""
        return path.resolve().relative_to(self.root.resolve()).as_posix()

    def trailers(self, commit: str) -> dict[str, str]:
        """Trailers of one commit's message."""
        text = self.repo.git.show("--no-patch", "--format=%(trailers:only,unfold)", commit)
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)

    def cut_off_at(self, commit: str) -> bool:
        """Whether a shallow clone ends at ``commit``: it then seems to have made every file it holds."""
        boundary = Path(self.repo.common_dir) / "shallow"
        return boundary.is_file() and commit in boundary.read_text().split()

    def study_commits(self, everywhere: bool = True) -> list[StudyCommit]:
        """All commits with a ``Study:`` trailer, oldest first.

        everywhere: those of other branches, tags and remotes too, after a rewritten history for
        instance; ``in_history`` tells them apart.
        """
        if not self.repo.head.is_valid():
            return []
        refs = ["HEAD", *(["--branches", "--tags", "--remotes"] if everywhere else [])]
        unit, end = "%x1f", "%x1e"
        shape = unit.join(("%H", "%cI", "%s", "%(trailers:only,unfold)", "%b")) + end
        options = ("--extended-regexp", "--grep=^Study: ", "--topo-order", "--reverse")
        try:
            text = self.repo.git.log(*refs, *options, f"--format={shape}")
            known = set(self.repo.git.rev_list("HEAD").split()) if everywhere else None
        except git.GitCommandError as e:
            raise _damaged("HEAD", e) from e
        found = []
        for entry in filter(None, (part.strip("\n") for part in text.split("\x1e"))):
            commit, at, subject, trailers, body = entry.split("\x1f")
            pairs = (line.split(": ", 1) for line in trailers.splitlines() if ": " in line)
            made = StudyCommit(
                commit, at, subject, dict(pairs), body, known is None or commit in known
            )
            if made.study:
                found.append(made)
        return found

    @contextmanager
    def work_tree(self, commit: str, folder: Path) -> Iterator[Path]:
        """A work tree of ``commit`` at ``folder`` for as long as the block runs; no branch, no hooks.

        The user's work tree, index and branch are not touched. What an interrupted run left at
        ``folder`` is removed first.
        """
        self.drop_work_tree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.repo.git(c="core.hooksPath=/dev/null").worktree(
                "add", "--quiet", "--detach", str(folder.resolve()), commit
            )
            yield folder
        except git.GitCommandError as e:
            raise _damaged(commit, e) from e
        finally:
            self.drop_work_tree(folder)

    def drop_work_tree(self, folder: Path) -> None:
        """Remove the work tree at ``folder`` and git's note of it; nothing happens if there is none."""
        try:
            self.repo.git.worktree("remove", "--force", "--force", str(folder.resolve()))
        except git.GitCommandError:  # half made or half removed: git no longer knows it
            shutil.rmtree(folder, ignore_errors=True)

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
        end of a merge. Jobs that commit at the same time wait for one another.
        """
        with FileLock(Path(self.repo.git_dir) / "occupancy-probe.lock"):
            return self._commit(paths, message)

    def _commit(self, paths: Sequence[Path], message: str) -> str:
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


def _damaged(commit: str, error: git.GitCommandError) -> RepositoryError:
    said = " ".join(str(error.stderr).replace("stderr:", "").strip(" '\n").split())
    return RepositoryError(
        f"{commit[:12]}: git cannot read it: {said}; get the missing objects (git fetch, git fetch"
        " --unshallow, git fsck) and run again"
    )


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
