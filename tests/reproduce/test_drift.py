"""Published feasibility against this environment's: in the report, and as a gate for CI."""

from __future__ import annotations

import gitstudy
import pytest
from gitstudy import DEVICE, feasibility, measured, publish

from occupancy_probe.exc import StudyError
from occupancy_probe.records import PublishedDrift, read_record
from occupancy_probe.study import load_study
from occupancy_probe.workflow import file_name, records_of, revision, select_studies


@pytest.fixture
def study(work, monkeypatch, trace_of):
    """The tiny study with published evidence, made by Triton 3.6.0."""
    monkeypatch.chdir(work)
    made = gitstudy.ready(work, trace_of)
    measured(made)
    assert publish(made) == 0
    return made


def check(study):
    return gitstudy.run("check_drift", study.name, "--results", "results/tiny")


def drift(work):
    return read_record(work / "results/tiny/drift.json", PublishedDrift).figures


def test_the_same_figures_pass(study, work, capsys):
    feasibility(study, versions={"triton": "3.7.1"})
    assert check(study) == 0
    assert "2 arms compared, 0 with another verdict, 0 with other" in capsys.readouterr().out
    assert {f.outcome for f in drift(work)} == {"same"}


def test_other_registers_are_drift_and_no_failure(study, work):
    feasibility(study, versions={"triton": "3.7.1"}, registers=24)
    assert check(study) == 0
    first = drift(work)[0]
    assert (first.outcome, first.where) == ("moved", f"sm_90, {DEVICE}")
    assert (first.versions_before, first.versions_after) == (
        {"triton": "3.6.0"},
        {"triton": "3.7.1"},
    )


def test_another_verdict_fails_and_says_from_to(study, capsys):
    feasibility(study, versions={"triton": "3.9.0"}, verdict="rejected")
    assert check(study) == 3
    said = capsys.readouterr().out
    assert (
        f"drift: baseline on sm_90, {DEVICE}: fits → rejected (triton 3.6.0 → triton 3.9.0)" in said
    )


def test_the_report_shows_drift_from_to(study, work):
    feasibility(study, versions={"triton": "3.7.1"}, registers=24)
    templates = ("--templates", str(gitstudy.REPOSITORY / "templates"))
    assert gitstudy.run("report", study.name, "--results", "results/tiny", *templates) == 0
    html = (work / "results/tiny/report.html").read_text()
    assert "Drift: published feasibility" in html
    assert "registers 20 → 24" in html and "triton 3.6.0 → triton 3.7.1" in html


def test_a_hash_that_looks_like_a_number_is_refused():
    assert revision("57b9763") == "57b9763"
    for number in (5797633, float("57e9763")):
        with pytest.raises(StudyError, match="read as the number"):
            revision(number)


def test_any_revision_has_a_file_name_of_its_log():
    assert file_name("tiny@2") == "tiny@2"
    assert "/" not in file_name("../../etc/passwd") and not file_name("..").startswith(".")


def test_a_past_revision_needs_no_study_of_today(tmp_path):
    assert select_studies("nonesuch", tmp_path, needed=False) == {}
    with pytest.raises(StudyError, match="no study 'nonesuch'"):
        select_studies("nonesuch", tmp_path)


def test_the_samples_of_a_device_that_is_not_here(study):
    assert [p.rsplit("/", 3)[-3::2] for p in records_of(load_study(study), DEVICE)] == [
        ["confirmation", "r64.json"],
        ["measurement", "r4.json"],
        ["measurement", "r64.json"],
    ]
    assert records_of(load_study(study), "nvidia-l4") == []
