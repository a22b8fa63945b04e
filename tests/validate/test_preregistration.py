"""Verdicts only under the plan that came first: on real repositories."""

from __future__ import annotations

import gitstudy
import pytest
from conftest import git
from gitstudy import DEVICE, commit, feasibility, measured, publish

from occupancy_probe.outcome import amendments_here, commit_to_check_out, here
from occupancy_probe.plan.difference import differences
from occupancy_probe.records import Plan, PlanCommit, read_record, write_record
from occupancy_probe.repository import Repository
from occupancy_probe.study import load_study
from occupancy_probe.workflow import published_stamps


@pytest.fixture
def study(work, monkeypatch, trace_of):
    """The tiny study, planned, compiled and measured."""
    monkeypatch.chdir(work)
    made = gitstudy.ready(work, trace_of)
    measured(made)
    return made


@pytest.fixture
def fresh_trace():
    """A trace of the study as it stands: the session's are kept by path."""
    from conftest import own_imports

    from occupancy_probe.launch.launches import trace_study

    def trace(path):
        with own_imports():
            return trace_study(load_study(path))

    return trace


def device(study):
    found = here(load_study(study), study.parent / "results/tiny")
    return found, (found.verdict.devices or [None])[0]


def row(device, arm="num_warps-8", workload="r64"):
    return next(r for r in device.results if (r.arm, r.workload) == (arm, workload))


def change(study, old, new, message="change"):
    text = study.read_text()
    assert old in text
    study.write_text(text.replace(old, new))
    return commit(study.parent, message)


def test_verdicts_stand_under_the_plan_that_came_first(study):
    _, found = device(study)
    assert found.preregistered and found.adopted == "num_warps-8"
    assert row(found).verdict == "faster"


@pytest.mark.parametrize(("seconds", "registered"), [(0, True), (0.4, True), (-1, False)])
def test_a_plan_of_the_same_second_as_the_first_sample_counts(study, seconds, registered):
    measured(study, seconds=seconds)
    _, found = device(study)
    assert found.preregistered is registered
    assert (row(found).verdict == "faster") is registered


def test_H1_a_plan_changed_after_its_samples_shows_them_as_exploratory(study, fresh_trace):
    first = read_record(study.parent / "results/tiny/plan_commit.json", PlanCommit).commit
    change(study, "improve: rows >= 64", "improve: rows >= 64, margin: 0.05")
    gitstudy.plan(study, fresh_trace, "--amend", "1 % was too narrow")
    found, one = device(study)
    assert row(one).verdict == "exploratory" and row(one).ratio == pytest.approx(0.8, rel=1e-3)
    assert row(one).reason.startswith("measured under the earlier plan ")
    assert f"of commit {first[:12]}; since then: decision.margin: 0.01 → 0.05" in row(one).reason
    assert one.decision.startswith("no decision: exploratory") and one.adopted is None
    assert found.verdict.notes == []


def test_H1_an_amendment_is_a_commit_that_says_what_and_why_and_is_listed(study, work, fresh_trace):
    first = read_record(work / "results/tiny/plan_commit.json", PlanCommit)
    change(study, "improve: rows >= 64", "improve: rows >= 64, margin: 0.05")
    made = gitstudy.plan(study, fresh_trace, "--amend", "1 % was too narrow")
    message = git(work, "log", "-1", "--format=%B")
    assert message.splitlines()[0] == "docs(tiny): A/B plan — Tiny A/B (amended)"
    assert "\nWhy: 1 % was too narrow\n- decision.margin: 0.01 → 0.05\n" in message
    assert f"Stage: amendment\nPlan-Hash: {made.plan_hash}\nAmends: {first.plan_hash}" in message
    document = git(work, "show", "HEAD:results/tiny/TINY_AB.md")
    assert "## Amendments" in document and "This commit: 1 % was too narrow" in document
    (amendment,) = amendments_here("tiny")
    assert amendment.commit == made.commit
    assert amendment.changes == ("decision.margin: 0.01 → 0.05",)
    measured(study)
    assert publish(study) == 0
    listed = git(work, "show", "HEAD:results/tiny/TINY_AB.md")
    assert (
        f"commit `{made.commit[:12]}`: 1 % was too narrow\n  - decision.margin: 0.01 → 0.05"
        in listed
    )


def pasted(study):
    words = ("--results", "results/tiny", "--templates", str(gitstudy.REPOSITORY / "templates"))
    assert gitstudy.run("paste", study.name, *words) == 0
    return (study.parent / "results/tiny/exports/pull_request.md").read_text()


def test_fresh_samples_beside_older_evidence_are_not_published_yet(study, work):
    """The evidence's commit is named while it holds what is shown, wherever that was measured."""
    planned = read_record(work / "results/tiny/plan_commit.json", PlanCommit).commit
    before = published_stamps(load_study(study))
    assert publish(study) == 0
    evidence = git(work, "rev-parse", "HEAD").strip()
    assert published_stamps(load_study(study)) != before, "the text is made again"
    text = pasted(study)
    assert "; measured here" in text
    assert f"git checkout {evidence}" in text and "not published yet" not in text
    measured(study, seconds=90)
    text = pasted(study)
    assert f"not published yet):\n\n```sh\ngit checkout {planned}" in text and evidence not in text
    assert publish(study) == 0
    assert f"git checkout {git(work, 'rev-parse', 'HEAD').strip()}" in pasted(study)
    measured(study, device="nvidia-b200")  # one of two devices is enough
    assert "not published yet" in pasted(study)


def test_what_is_to_be_checked_out_holds_the_plan_and_the_evidence(study, work, fresh_trace):
    loaded = load_study(study)
    planned = read_record(work / "results/tiny/plan_commit.json", PlanCommit).commit
    assert commit_to_check_out(loaded, planned) is None
    assert publish(study) == 0
    evidence = git(work, "rev-parse", "HEAD").strip()
    (work / "note.txt").write_text("x")
    commit(work, "something else")
    assert commit_to_check_out(loaded, planned) == evidence
    assert commit_to_check_out(loaded, None) is None
    change(study, "improve: rows >= 64", "improve: rows >= 64, margin: 0.05")
    amended = gitstudy.plan(study, fresh_trace, "--amend", "1 % was too narrow").commit
    assert commit_to_check_out(load_study(study), amended) is None, "evidence of an older plan"
    words = ("--results", "results/tiny", "--templates", str(gitstudy.REPOSITORY / "templates"))
    assert gitstudy.run("paste", study.name, *words) == 0
    text = (work / "results/tiny/exports/pull_request.md").read_text()
    assert f"(what is shown above is not published yet):\n\n```sh\ngit checkout {amended}" in text
    assert "Rule, in the plan as amended" in text and "the decision rule itself" in text


def test_no_amendment_where_nothing_was_changed(study, work, fresh_trace):
    before = git(work, "rev-parse", "HEAD")
    gitstudy.plan(study, fresh_trace, "--amend", "no reason at all")
    assert git(work, "rev-parse", "HEAD") == before
    assert amendments_here("tiny") == []


def test_H2_an_arm_that_changed_is_stale_and_the_others_are_exploratory(study, fresh_trace):
    text = study.read_text().replace("[8]", "[8, 2]")
    study.write_text(text)
    commit(study.parent, "another arm")
    gitstudy.plan(study, fresh_trace)
    feasibility(study)
    measured(study)
    change(study, "[8, 2]", "[8]")
    gitstudy.plan(study, fresh_trace)
    found, one = device(study)
    assert row(one).verdict == "exploratory"
    (note,) = [n for n in found.verdict.notes if "r64" in n and "measurement" in n]
    assert "stale: arm num_warps-2 was" in note and "kept out" in note
    assert not [r for r in one.results if r.arm == "num_warps-2"]


@pytest.mark.parametrize(
    "edit",
    [
        ("tiny/kernel.py", "value * scale", "scale * value"),
        ("tiny.yaml", "num_stages: 2}", "num_stages: 1}"),
    ],
    ids=["kernel source", "baseline"],
)
def test_H2_another_kernel_or_baseline_leaves_nothing(study, fresh_trace, edit):
    name, old, new = edit
    path = study.parent / name
    path.write_text(path.read_text().replace(old, new))
    commit(study.parent, "change")
    gitstudy.plan(study, fresh_trace)
    feasibility(study)
    found, one = device(study)
    assert one is None
    stale = [n for n in found.verdict.notes if n.startswith("measurement/")]
    assert len(stale) == 2 and all("stale" in n for n in stale)


def test_H6_rewritten_history_makes_samples_exploratory(study, work):
    git(work, "commit", "--quiet", "--amend", "-m", "reworded")
    _, one = device(study)
    assert not one.preregistered
    assert "is not in the history of HEAD" in row(one).reason


def test_H6_a_detached_head_finds_its_plan(study, work):
    git(work, "checkout", "--quiet", "--detach")
    _, one = device(study)
    assert one.preregistered


def test_H6_a_shallow_clone_says_what_it_lacks(study, work, tmp_path, monkeypatch):
    publish(study)
    (work / "file").write_text("later\n")
    commit(work, "later")
    git(tmp_path, "clone", "--quiet", "--depth=1", work.as_uri(), "clone")
    monkeypatch.chdir(tmp_path / "clone")
    _, one = device(tmp_path / "clone/tiny.yaml")
    assert not one.preregistered
    assert "git fetch --unshallow" in row(one).reason


def test_samples_under_a_plan_that_came_back_count_again(study, work, fresh_trace):
    change(study, "title: Tiny", "title: Tinier")
    gitstudy.plan(study, fresh_trace)
    change(study, "title: Tinier", "title: Tiny")
    gitstudy.plan(study, fresh_trace)
    _, one = device(study)
    assert one.preregistered and one.adopted == "num_warps-8"


def test_a_merge_between_plan_and_samples_is_no_hindrance(study, work):
    git(work, "switch", "--quiet", "-c", "side", "HEAD~1")
    (work / "other").write_text("x\n")
    commit(work, "side")
    git(work, "switch", "--quiet", "main")
    git(work, "merge", "--quiet", "--no-ff", "-m", "merge", "side")
    _, one = device(study)
    assert one.preregistered


def test_an_override_never_becomes_a_pre_registration(work, monkeypatch, fresh_trace):
    monkeypatch.chdir(work)
    study = gitstudy.start(work)
    study.write_text(study.read_text() + "risks: [none]\n")
    assert not gitstudy.plan(study, fresh_trace, "--allow-dirty").preregistered
    assert "Uncommitted-Inputs: tiny.yaml" in git(work, "log", "-1", "--format=%B")
    commit(work, "the study, afterwards")
    again = gitstudy.plan(study, fresh_trace)
    assert not again.preregistered
    assert again.note == "inputs were not committed: tiny.yaml"


def test_a_plan_commit_that_holds_another_plan_is_not_believed(study, work):
    path = work / "results/tiny/plan_commit.json"
    first = git(work, "rev-parse", "HEAD~1").strip()
    record = read_record(path, PlanCommit)
    measured(study, plan_commit=first)
    write_record(path, record)
    _, one = device(study)
    assert "is not known to hold this plan" in row(one).reason


def test_evidence_under_an_earlier_plan_leaves_the_document_alone(study, work, fresh_trace):
    from occupancy_probe.outcome import fill_document, here, published

    publish(study)
    change(study, "title: Tiny", "title: Tinier")
    gitstudy.plan(study, fresh_trace)
    for path in (work / "results/tiny").glob("measurement/*/*.json"):
        path.unlink()
    loaded, results = load_study(study), work / "results/tiny"
    fill_document(loaded, results, gitstudy.REPOSITORY / "templates", here(loaded, results))
    assert git(work, "status", "--porcelain") == ""
    assert row(published(loaded, results).verdict.devices[0]).verdict == "exploratory"
    assert Repository.around(work).committed_text(results / "TINY_AB.md").count("not measured")


def test_differences_are_lines_a_reader_can_follow(study, work, fresh_trace):
    old = read_record(work / "results/tiny/plan.json", Plan)
    text = study.read_text()
    for a, b in (
        ("[8]", "[8, 16]"),
        ("rows: [4, 64]", "rows: [4, 128]"),
        ("why: they might help", "why: they hide latency"),
    ):
        assert a in text
        text = text.replace(a, b)
    study.write_text(text)
    commit(work, "change")
    gitstudy.plan(study, fresh_trace)
    new = read_record(work / "results/tiny/plan.json", Plan)
    assert differences(old, new) == [
        "hypothesis.why: they might help → they hide latency",
        "arm num_warps-16 added: BLOCK=512 num_warps=16 num_stages=2",
        "workload r64 removed",
        "workload r128 added: rows=128 n=500",
    ]
    assert differences(new, new) == []
    bare = new.model_copy(update={"sections": new.sections | {"later section": None}})
    assert differences(new, bare) == []
    assert DEVICE not in str(differences(old, new))
