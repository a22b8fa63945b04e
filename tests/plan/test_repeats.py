"""A plan that was measured more than once says so."""

from __future__ import annotations

import gitstudy
import pytest
from conftest import git
from gitstudy import measured, publish

from occupancy_probe.records import Measurement, read_record, write_record


@pytest.fixture
def study(work, monkeypatch, trace_of):
    """The tiny study, planned and compiled."""
    monkeypatch.chdir(work)
    return gitstudy.ready(work, trace_of)


def document(work) -> str:
    return (work / "results/tiny/TINY_AB.md").read_text()


def test_what_a_later_measurement_replaced_is_named_with_its_commit_and_decision(study, work):
    measured(study)
    publish(study)
    first = git(work, "rev-parse", "HEAD")[:12]
    assert "## Measured before" not in document(work)
    measured(study, seconds=86_400)
    publish(study)
    said = document(work)[document(work).index("## Measured before") :]
    assert said.count("evidence commit") == 1
    assert f"evidence commit `{first}`: adopt num_warps-8" in said
    assert git(work, "status", "--porcelain") == ""


@pytest.mark.parametrize("kind", ["confirmation", "measurement"])
def test_one_record_that_was_taken_again_is_a_repetition_too(study, work, kind):
    measured(study)
    path = work / f"results/tiny/{kind}/nvidia-h200/r64.json"
    record = read_record(path, Measurement)
    slow = {"num_warps-8": [t * 2 for t in record.replicates[0].arms["num_warps-8"]]}
    first = [r.model_copy(update={"arms": r.arms | slow}) for r in record.replicates]
    write_record(path, record.model_copy(update={"replicates": first}))
    publish(study)
    assert "adopt num_warps-8" not in document(work)
    commit = git(work, "rev-parse", "HEAD")[:12]
    write_record(path, record)
    publish(study)
    said = document(work)[document(work).index("## Measured before") :]
    assert f"evidence commit `{commit}`: reject" in said and said.count("evidence commit") == 1
    assert "**Decision:** adopt num_warps-8" in said


def test_publishing_the_same_samples_again_is_no_repetition(study, work):
    measured(study)
    publish(study)
    path = work / "results/tiny/evidence/nvidia-h200/verdict.json"
    path.write_text("{}")
    gitstudy.commit(work, "broken by hand")
    publish(study)
    assert "## Measured before" not in document(work)


def test_a_measurement_of_another_plan_is_no_repetition(study, work, trace_of):
    measured(study)
    publish(study)
    study.write_text(study.read_text().replace("they might help", "they may help"))
    gitstudy.commit(work, "other words")
    gitstudy.plan(study, trace_of)
    measured(study, seconds=86_400)
    publish(study)
    assert "## Amendments" in document(work) and "## Measured before" not in document(work)
