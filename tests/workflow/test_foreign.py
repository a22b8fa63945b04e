"""A study of a foreign kernel without a launch, and under another Triton: as people run it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from launch.test_environment import VERSION, another_triton

from occupancy_probe.gpu import present
from workflow.test_workflow import FIXTURES, IGNORE, REPOSITORY, git, snakemake

pytestmark = pytest.mark.skipif(present() is not None, reason="expects a machine without a GPU")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The example study, cut down to two arms, with an environment that is here and one that is not."""
    folder = tmp_path_factory.mktemp("foreign")
    shutil.copytree(FIXTURES / "foreign" / "fastattn", folder / "lib" / "fastattn")
    another_triton(folder / "other")
    content = yaml.safe_load((REPOSITORY / "studies/examples/foreign_kernel.yaml").read_text())
    content["kernel"]["file"] = "lib/fastattn/ops/decode.py"
    content["targets"] = ["sm_90"]
    content["arms"] = [{"vary": {"num_warps": [8]}, "why": "more warps"}]
    content["workloads"] = [{"grid": {"rows": [64], "context": [4096], "splits": [8]}}]
    content["environments"] = {"other": "other", "elsewhere": "/no/such/place"}
    (folder / "study.yaml").write_text(yaml.safe_dump(content))
    (folder / ".gitignore").write_text(IGNORE + "other\n")
    git(folder, "init", "-q", ".")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "study")
    done = snakemake(folder, "ab_report", "--config", "study=study.yaml")
    assert done.returncode == 0, done.stderr
    return folder, done


def test_the_report_works_without_a_launch_and_one_line_says_so(finished):
    folder, done = finished
    assert done.stdout.count("foreign_kernel: no launch: feasibility only\n") == 1
    report = (folder / "results/foreign_kernel/report.html").read_text()
    assert "not measured" in report and "_split_decode_kernel" in report
    assert git(folder, "status", "--porcelain") == ""


def test_the_matrix_under_another_triton_is_compared(finished):
    folder, done = finished
    results = folder / "results/foreign_kernel"
    assert (results / "feasibility@other/sm_90/baseline.json").exists()
    assert "other: sm_90: 2 arms, 2 with the same code; 0 other registers" in done.stdout
    assert VERSION in (results / "drift@other.txt").read_text()
    assert VERSION in (results / "report.html").read_text()


def test_an_environment_that_is_not_here_is_left_out_and_named(finished):
    _, done = finished
    assert "environments.elsewhere: left out: /no/such/place: no Triton there" in done.stderr


def test_an_environment_that_is_asked_for_must_be_here(finished):
    folder: Path = finished[0]
    done = snakemake(folder, "drift", "-n", "--config", "study=study.yaml", "triton=/no/such/place")
    assert done.returncode != 0
    assert "error: /no/such/place: no Triton there; give a Python executable" in done.stderr


def test_a_second_run_does_nothing(finished):
    done = snakemake(finished[0], "ab_report", "--config", "study=study.yaml")
    assert done.returncode == 0 and "Nothing to be done" in done.stdout + done.stderr
