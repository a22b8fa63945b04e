"""Run a revision's own workflow in its own work tree, in the present or in its pinned environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from filelock import FileLock, Timeout

from occupancy_probe.digest import digest
from occupancy_probe.exc import RepositoryError
from occupancy_probe.lifetime import end_with_parent
from occupancy_probe.records import write_text
from occupancy_probe.repository import Repository

END_LIMIT_S = 10.0
WAIT_LIMIT_S = 6 * 3600.0
LOOK_S = 0.5
_asked_to_stop: list[int] = []
_TODAY = Path(__file__).parents[2]
"""Where this package lies: for revisions that bring no source of it."""


@contextmanager
def own_tree(repository: Repository, commit: str, root: Path) -> Iterator[tuple[Path, bool]]:
    """A work tree of ``commit`` at ``root/<commit>/tree``, held by one run at a time, gone afterwards.

    A second run of the same commit waits, and is told that it did. Trees of runs that were killed
    are removed on the way; the folder keeps itself out of version control.
    """
    root.mkdir(parents=True, exist_ok=True)
    if not (root / ".gitignore").exists():
        write_text(root / ".gitignore", "*\n")
    mine = root / commit[:12]
    for left in sorted(root.glob("*/tree")):
        if left.parent != mine:
            with _alone(left.parent, 0) as free:
                if free:
                    repository.drop_work_tree(left)
    with _alone(mine, 0) as free:
        waited = not free
        if waited:
            print(f"waiting for another run of {commit[:12]} ({_lock(mine)})", file=sys.stderr)
    with _alone(mine, WAIT_LIMIT_S) as free:
        if not free:
            raise RepositoryError(f"{_lock(mine)}: held by another run; end that run and try again")
        with repository.work_tree(commit, mine / "tree") as tree:
            yield tree, waited


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@contextmanager
def _alone(folder: Path, limit_s: float) -> Iterator[bool]:
    """Whether the folder's lock, which ends with its process, could be had within ``limit_s``."""
    lock = FileLock(_lock(folder))
    try:
        lock.acquire(timeout=limit_s)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def locked_python(tree: Path, folder: Path, log: Path) -> Path:
    """Python of an environment with exactly the revision's requirements, made once per folder.

    RepositoryError where it pins none or they cannot be installed (any more).
    """
    pinned = tree / "requirements.txt"
    if not pinned.is_file():
        raise RepositoryError(
            "env=locked: this revision pins no requirements.txt; leave env away to use the present one"
        )
    place = folder.absolute() / "venv"  # what it runs, runs in the tree
    python = place / "bin" / "python"
    stamp, wanted = place / "requirements.digest", digest(pinned.read_text(encoding="utf-8"))
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    venv.create(place, clear=True, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--requirement", pinned.name]
    if _run(install, tree, dict(os.environ), log):
        raise RepositoryError(f"env=locked: requirements cannot be installed: {_last_words(log)}")
    write_text(stamp, wanted)
    return python


def run_workflow(
    python: Path,
    tree: Path,
    snakefile: Path,
    study_file: str,
    results: str,
    log: Path,
) -> str | None:
    """``ab_report`` of the study, as far as it comes; the reason if it did not come to its end.

    The tree has no branch, so nothing can be committed: a plan that is not in the revision already
    is frozen without a commit, in a second run.
    """
    command = [str(python), "-m", "snakemake", "--snakefile", str(snakefile.resolve())]
    command += ["--directory", str(tree.resolve()), "--cores", "all", "--keep-going"]
    command += ["ab_report", "--config", f"study={study_file}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment["PATH"] = f"{python.absolute().parent}{os.pathsep}{environment.get('PATH', '')}"
    own = tree / "src"
    source = own.resolve() if (own / "occupancy_probe").is_dir() else _TODAY
    given = environment.get("PYTHONPATH")  # another Triton may be named there
    environment["PYTHONPATH"] = f"{source}{os.pathsep}{given}" if given else str(source)
    if not _run(command, tree, environment, log):
        return None
    if not (tree / results / "plan_commit.json").exists():
        _run([*command, "commit=False"], tree, environment, log)
    return _last_words(log)


def _run(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> int:
    """Exit status of ``command``, all it says appended to ``log``; it ends with this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        try:
            while (status := _ended(child)) is None:
                if _asked_to_stop:  # the exception may have been lost in a finaliser
                    raise SystemExit(_asked_to_stop[0])
            return status
        except BaseException:
            _end(child)
            raise


def stop(number: int, frame: Any) -> NoReturn:
    """Signal handler: leave through every `finally`, so that the work tree is removed."""
    _asked_to_stop.append(128 + number)
    raise SystemExit(128 + number)


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all that it started: it leads a session of its own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
            child.wait(END_LIMIT_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def _last_words(log: Path) -> str:
    """The first error that a stage reported, else the last line that says anything."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    said = [line for line in lines if line.lower().startswith("error:")]
    if said:
        return said[0][len("error:") :].strip()
    return next((line for line in reversed(lines) if line), "it said nothing")
