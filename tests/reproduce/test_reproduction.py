"""A past revision tried again: from any clone, twice at once, killed in the middle, leaving no trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gitstudy
import pytest
from conftest import git
from gitstudy import commit, measured, publish

from occupancy_probe.exc import RepositoryError
from occupancy_probe.gpu import present
from occupancy_probe.records import Feasibility, read_record, write_record
from occupancy_probe.repository import Repository
from occupancy_probe.reproduce.rerun import locked_python, own_tree

pytestmark = pytest.mark.skipif(present() is not None, reason="expects a machine without a GPU")

OWN = ("Snakefile", "rules", "src", "templates", "profiles")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A repository with a workflow of its own, the tiny study and its evidence: tiny@1, tiny@2."""
    patch = pytest.MonkeyPatch()
    work = tmp_path_factory.mktemp("home")
    for who in ("AUTHOR", "COMMITTER"):
        patch.setenv(f"GIT_{who}_NAME", "Ada")
        patch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    git(work, "init", "--quiet", "--initial-branch=main")
    for name in OWN:
        source = gitstudy.REPOSITORY / name
        if source.is_dir():
            shutil.copytree(
                source, work / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(source, work)
    study = gitstudy.start(work)
    patch.chdir(work)
    command = [sys.executable, "-m", "snakemake", "ab_report", "--config", "study=tiny.yaml"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    measured(study)
    assert publish(study) == 0
    yield work
    patch.undo()


def state(folder: Path) -> tuple[str, ...]:
    """All that a user would see as changed."""
    asked = (
        ["status", "--porcelain"],
        ["diff"],
        ["diff", "--cached"],
        ["rev-parse", "HEAD"],
        ["worktree", "list"],
        ["branch", "-a"],
    )
    return tuple(git(folder, *words) for words in asked)


def record(folder: Path, work: Path) -> dict:
    name = git(work, "rev-parse", "--short=12", "HEAD").strip()
    return json.loads((folder / f"results/reproduce/{name}/reproduction.json").read_text())


@pytest.fixture
def copied(home, tmp_path):
    git(tmp_path, "clone", "--quiet", str(home), "clone")
    return tmp_path / "clone"


def test_a_dirty_tree_is_left_as_it_is_and_the_revision_is_reproduced(copied):
    (copied / "tiny/kernel.py").write_text("broken = (\n")
    (copied / "staged").write_text("x\n")
    git(copied, "add", "staged")
    before = state(copied)
    done = gitstudy.reproduce(copied, "tiny@2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert state(copied) == before
    assert done.stdout.rstrip().endswith("reproduced (times were not measured again)")
    found = record(copied, copied)
    assert (found["verdict"], found["workflow"]) == ("reproduced", "its own")
    kinds = {f["kind"]: f["outcome"] for f in found["figures"]}
    assert kinds == {
        "plan": "same", "feasibility": "same", "logic": "same", "statistics": "same",
        "document": "same", "timing": "not comparable",
    }  # fmt: skip
    rows = [f for f in found["figures"] if f["kind"] == "statistics"]
    assert len(rows) == 2 * (
        3 * 2 + 1
    )  # by its own code and by today's: arms x workloads, decision
    assert not list((copied / "results/reproduce").glob("*/tree"))


def test_H3_twice_at_once_from_a_bare_clone_with_figures_that_moved(home, tmp_path):
    git(tmp_path, "clone", "--quiet", str(home), "other")
    other = tmp_path / "other"
    path = next((other / "results/tiny/evidence").glob("*/feasibility/sm_90/baseline.json"))
    old = read_record(path, Feasibility)
    changed = {"registers": 99, "versions": old.versions | {"triton": "3.5.0"}}
    write_record(path, old.model_copy(update=changed))
    samples = next((other / "results/tiny/evidence").glob("*/measurement/r64.json"))
    samples.write_text(samples.read_text().replace("occupancy-probe/1", "occupancy-probe/2"))
    commit(other, "evidence of another Triton, and from a newer version")
    git(tmp_path, "clone", "--quiet", "--bare", str(other), "bare.git")
    command = [sys.executable, "-m", "occupancy_probe", "reproduce", "HEAD"]
    command += ["--repository", str(tmp_path / "bare.git")]
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [run.communicate(timeout=300) for run in both]
    assert [run.returncode for run in both] == [3, 3], said
    assert sum("waiting for another run" in err for _, err in said) == 1
    assert said[0][0].splitlines()[-1] == said[1][0].splitlines()[-1]
    flat = " ".join(said[0][0].replace("│", " ").split())
    assert "registers 99 → " in flat and "triton 3.5.0" in flat
    assert "made by a newer version" in flat and flat.endswith(
        "reproduced in part (times were not measured again)"
    )
    assert git(tmp_path / "bare.git", "worktree", "list").count("\n") == 1


def test_H6_a_shallow_clone_reproduces_what_it_can_and_names_the_rest(home, tmp_path):
    git(tmp_path, "clone", "--quiet", "--depth=1", home.as_uri(), "shallow")
    done = gitstudy.reproduce(tmp_path / "shallow", "HEAD")
    assert done.returncode == 3, done.stdout + done.stderr
    flat = " ".join(done.stdout.replace("│", " ").split())
    assert "this clone is shallow" in flat and "git fetch --unshallow" in flat
    outcomes = {(f["kind"], f["outcome"]) for f in record(tmp_path / "shallow", home)["figures"]}
    assert ("feasibility", "same") in outcomes and ("statistics", "not comparable") in outcomes


def test_killed_in_the_middle_nothing_of_it_stays(copied):
    before = state(copied)
    command = [sys.executable, "-m", "occupancy_probe", "reproduce", "tiny@2"]
    run = subprocess.Popen(command, cwd=copied, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    root = copied / "results/reproduce"
    until(lambda: list(root.glob("*/workflow.log")))
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=120) == 128 + signal.SIGTERM
    assert state(copied) == before and not list(root.glob("*/tree"))


def test_killed_hard_the_next_run_tidies_up(copied):
    before = state(copied)
    code = (
        "import time; from pathlib import Path; from occupancy_probe.repository import Repository;"
        "from occupancy_probe.reproduce.rerun import own_tree; r = Repository.around(Path());"
        "held = own_tree(r, r.resolve('HEAD'), Path('results/reproduce')); held.__enter__();"
        "print('ready', flush=True); time.sleep(60)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], cwd=copied, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout.readline() == "ready\n"
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert git(copied, "worktree", "list").count("\n") == 2
    repository, root = Repository.around(copied), copied / "results/reproduce"
    with own_tree(repository, repository.resolve("HEAD~1"), root) as (tree, _):
        assert [p.parent.name for p in root.glob("*/tree")] == [tree.parent.name]
        assert (tree / "Snakefile").exists()
    assert state(copied) == before


def test_a_tree_in_use_is_not_taken_away(copied):
    repository, root = Repository.around(copied), copied / "results/reproduce"
    with (
        own_tree(repository, repository.resolve("HEAD"), root) as (one, _),
        own_tree(repository, repository.resolve("HEAD~1"), root) as (two, _),
    ):
        assert (one / "tiny.yaml").exists() and (two / "tiny.yaml").exists()
    assert not list(root.glob("*/tree"))


def test_hooks_of_the_repository_do_not_run(copied):
    hook = copied / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    repository = Repository.around(copied)
    with repository.work_tree("HEAD", copied / "results/reproduce/x/tree") as tree:
        assert not (tree / "ran").exists() and not (copied / "ran").exists()


def test_a_locked_environment_is_made_once_from_what_the_revision_pins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree, log, here = tmp_path / "tree", tmp_path / "log", Path()
    tree.mkdir()
    with pytest.raises(RepositoryError, match=r"pins no requirements\.txt"):
        locked_python(tree, here, log)
    (tree / "requirements.txt").write_text("# nothing\n")
    python = locked_python(tree, here, log)
    stamp = python.stat().st_ctime_ns
    bare = [
        str(python),
        "-I",
        "-c",
        "import pip, importlib.util as u; print(u.find_spec('snakemake'))",
    ]
    assert subprocess.run(bare, capture_output=True, text=True).stdout == "None\n"
    assert locked_python(tree, here, log) == python and python.stat().st_ctime_ns == stamp
    monkeypatch.setattr("venv.create", lambda *place, **options: None)  # it is there already
    (tree / "requirements.txt").write_text("./no-such-package-1.0-py3-none-any.whl\n")
    with pytest.raises(RepositoryError, match="requirements cannot be installed: "):
        locked_python(tree, here, log)


def until(condition, limit_s=60.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
