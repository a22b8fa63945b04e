"""`must_fit`: what a study requires, what fails it, and what machines read."""

from __future__ import annotations

import json

import pytest
from conftest import FIXTURES, copy_fixture

from occupancy_probe.cli import main
from occupancy_probe.exc import StudyError
from occupancy_probe.gpu import target
from occupancy_probe.research.matrix import summary
from occupancy_probe.study import load_study

LIMITS = FIXTURES / "tiny_limits.yaml"


@pytest.fixture
def study_with(tmp_path):
    def make(line):
        path = copy_fixture("tiny_limits", tmp_path / "study")
        path.write_text(f"{path.read_text()}\n{line}\n")
        return path

    return make


@pytest.fixture
def run(tmp_path, matrix_of):
    """`summarize` and `require_fit` over the compiled fixture: the exit status, feasibility.json."""

    def command(path):
        study, results = load_study(path), tmp_path / "results"
        (results / "feasibility").mkdir(parents=True)
        for name in study.file.targets:
            found = summary(target(name), matrix_of(LIMITS, name).records, study.must_fit(name))
            (results / "feasibility" / f"{name}.json").write_text(json.dumps(found))
        assert main(["summarize", str(path), "--results", str(results)]) == 0
        status = main(["require_fit", str(path), "--results", str(results)])
        return status, json.loads((results / "feasibility.json").read_text())

    return command


def test_a_list_of_targets_means_every_arm(study_with):
    study = load_study(study_with("must_fit: [sm_120]"))
    assert study.must_fit("sm_90") == []
    assert len(study.must_fit("sm_120")) == 7
    assert "null" not in study.must_fit("sm_120")


def test_arms_that_fit_meet_it(study_with, run, capsys):
    status, found = run(study_with("must_fit: {sm_90: [baseline, num_warps-8]}"))
    assert (status, found["must_fit"]) == (0, "met")
    assert found["targets"]["sm_90"]["must_fit"] == ["baseline", "num_warps-8"]
    said = capsys.readouterr()
    assert said.err == ""
    lines = "5 of 7 arms fit, 2 rejected, 3 the same code as another"
    assert said.out.splitlines() == [
        f"tiny_limits: {name}: {lines}" for name in ("sm_90", "sm_120")
    ]


def test_arms_that_do_not_fit_fail_it_with_one_line_per_target(study_with, run, capsys):
    status, found = run(study_with("must_fit: [sm_120, sm_90]"))
    assert (status, found["must_fit"]) == (1, "failed")
    failed = found["targets"]["sm_120"]["must_fit_failed"]
    assert failed.keys() == {"num_warps-6", "num_warps-64"}
    assert "2,048 threads > 1,024" in failed["num_warps-64"]
    assert found["targets"]["sm_120"]["reasons"]["num_warps-64"] == [failed["num_warps-64"]]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all("must fit on sm_" in line and "num_warps-64 (" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("must_fit: [sm_80]", "must_fit: sm_80 is none of the study's targets"),
        ("must_fit: {sm_90: [w9]}", "must_fit: no arm named w9"),
    ],
)
def test_unknown_targets_and_arms_are_refused(study_with, line, said):
    with pytest.raises(StudyError, match=said):
        load_study(study_with(line))
