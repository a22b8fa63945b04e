"""The workflow as people run it: real Snakemake, a real repository, the tiny study."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy_probe.gpu import present

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures"
IGNORE = "results/*/*\n!results/*/plan.json\n!results/*/*.md\n!results/*/*.svg\n!results/*/evidence/\n.snakemake\n__pycache__\n"

pytestmark = pytest.mark.skipif(present() is not None, reason="expects a machine without a GPU")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def snakemake(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    identity = {
        f"GIT_{who}_{what}": "t@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        str(REPOSITORY / "Snakefile"),
        "--cores",
        "2",
    ]
    return subprocess.run(
        [*command, "--directory", str(folder), *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={**os.environ, **identity},
    )


def project(folder: Path) -> Path:
    shutil.copytree(
        FIXTURES / "tiny", folder / "tiny", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(FIXTURES / "tiny.yaml", folder / "tiny.yaml")
    (folder / ".gitignore").write_text(IGNORE)
    git(folder, "init", "-q", ".")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "study")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project whose report was made once; tests that change it work on a copy."""
    folder = project(tmp_path_factory.mktemp("project"))
    done = snakemake(folder, "ab_report", "--config", "study=tiny.yaml")
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished[0], tmp_path / "copy", copy_function=shutil.copy2))


def test_one_command_gives_plan_commit_matrix_logic_and_report(finished):
    folder, done = finished
    results = folder / "results/tiny"
    assert "not measured on any device yet" in done.stdout
    assert "not measured" in (results / "report.html").read_text()
    assert len(list(results.glob("feasibility/*/*.json"))) == 2 * 4
    assert (results / "correctness/interpreter/baseline.json").exists()
    message = git(folder, "log", "-1", "--format=%B")
    assert message.startswith("docs(tiny): A/B plan — Tiny A/B\n")
    assert "Study: tiny" in message and "Stage: plan" in message and "Plan-Hash: " in message
    assert git(folder, "status", "--porcelain") == ""


def test_a_second_run_does_nothing_and_says_so(finished):
    done = snakemake(finished[0], "ab_report", "--config", "study=tiny.yaml")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_changed_arm_costs_its_own_compile_and_a_new_verdict(copied):
    arms = copied / "results/tiny/feasibility/sm_90"
    before = {p.name: p.stat().st_mtime_ns for p in arms.glob("*.json")}
    verdict = (copied / "results/tiny/verdict.json").stat().st_mtime_ns
    study = copied / "tiny.yaml"
    study.write_text(study.read_text().replace("[1, 8]", "[1, 16]"))
    git(copied, "commit", "-qam", "another arm")
    done = snakemake(copied, "ab_report", "--config", "study=tiny.yaml")
    assert done.returncode == 0, done.stderr
    assert "2/2 sm_" in done.stderr  # of two targets
    after = {p.name: p.stat().st_mtime_ns for p in arms.glob("*.json")}
    assert {n for n in after if after[n] != before.get(n)} == {"num_warps-16.json"}
    assert (copied / "results/tiny/verdict.json").stat().st_mtime_ns > verdict
    assert len(git(copied, "log", "--format=%H", "--", "results/tiny/plan.json").split()) == 2


def test_a_fresh_clone_finds_the_plan_and_stays_clean(finished, tmp_path):
    git(tmp_path, "clone", "-q", str(finished[0]), "clone")
    clone = tmp_path / "clone"
    head = git(clone, "rev-parse", "HEAD")
    done = snakemake(clone, "ab_report", "--config", "study=tiny.yaml")
    assert done.returncode == 0, done.stderr
    assert git(clone, "rev-parse", "HEAD") == head
    assert git(clone, "status", "--porcelain") == ""


def test_an_uncommitted_study_is_refused_with_the_remedy(tmp_path):
    folder = project(tmp_path)
    with (folder / "tiny.yaml").open("a") as study:
        study.write("risks: [none]\n")
    done = snakemake(folder, "plan", "--config", "study=tiny.yaml")
    assert done.returncode != 0
    assert "error: tiny.yaml: the plan cannot be committed before its inputs" in done.stderr
    assert "allow_dirty=True" in done.stderr
    assert not (folder / "results/tiny/plan.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("num_warps: [1, 8]", "num_warp: [1, 8]"),
            "num_warp is neither in baseline nor a launch option",
        ),
        (("hypothesis:", "hypotesis:"), "hypotesis: unknown key; did you mean 'hypothesis'?"),
        (("sm_120", "sm_121x"), "unknown target 'sm_121x', did you mean"),
        (("path: tiny", "path: tinny"), "kernel.path: no "),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(tmp_path, change, words):
    folder = project(tmp_path)
    study = folder / "tiny.yaml"
    study.write_text(study.read_text().replace(*change))
    done = snakemake(folder, "ab_report", "--config", "study=tiny.yaml")
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) >= 1 and any(words in line for line in said), done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "results").exists()


def test_an_unknown_study_names_the_known_ones():
    done = snakemake(REPOSITORY, "ab_report", "-n", "--config", "study=nonesuch")
    assert done.returncode != 0
    assert "no study 'nonesuch'" in done.stderr and "dsv4_attn_occupancy" in done.stderr


def test_a_study_without_a_server_is_refused_before_anything_runs(tmp_path):
    folder = project(tmp_path)
    done = snakemake(folder, "serve", "--config", "study=tiny.yaml")
    assert done.returncode != 0
    assert "tiny.yaml: serve: missing; say how a server is started, and its `load`" in done.stderr
    assert not (folder / "results").exists()


def test_measuring_without_a_gpu_says_so(copied):
    done = snakemake(copied, "measure", "--config", "study=tiny.yaml")
    assert done.returncode != 0
    assert "this target needs an NVIDIA GPU and none was found here" in done.stderr
