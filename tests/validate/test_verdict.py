"""Rows and decisions from simulated measurements with known truth."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from occupancy_probe.records import (
    ArmPlan,
    Check,
    Clocks,
    Correctness,
    Feasibility,
    Measurement,
    Plan,
    PlanCommit,
    Reason,
    Replicate,
    Verdict,
    WorkloadPlan,
    read_record,
    write_record,
)
from occupancy_probe.study import load_study
from occupancy_probe.validate.collect import Collected, DeviceRecords, collect
from occupancy_probe.validate.verdict import floors, judge

STUDY = """
name: s
title: t
document: D
hypothesis: {what: w, why: w, how: h}
kernel: {path: ., problem: P, function: f}
baseline: {num_warps: 4, num_stages: 2}
arms:
  - list: [{num_warps: 8}]
    name: w8
    why: x
  - list: [{num_stages: 1}]
    name: s1
    why: x
  - list: [{num_stages: 3}]
    name: s3
    why: x
  - list: [{num_stages: 4}]
    name: s4
    why: x
targets: [sm_90, sm_120]
workloads:
  - grid: {c: [1, 64, 96]}
    name: c{c}
assume: ["fits('sm_90', 's3')"]
checks:
  logic: [{grid: {c: [1]}}]
decision: {improve: c >= 64, guard: c < 64, guard_loss: 0.02, margin: 0.01, alpha: 0.05}
"""
COMMIT = "c0ffee" * 6
ARMS = ("baseline", "null", "w8", "s1", "s3", "s4")


@pytest.fixture
def study(tmp_path):
    (tmp_path / "problem.py").write_text("")
    (tmp_path / "s.yaml").write_text(STUDY)
    return load_study(tmp_path / "s.yaml")


def samples(ratios, workload, seed=0, noise=0.001, processes=6, **changes):
    """A measurement whose arms truly take 10 µs × ratio, with noise between processes and blocks."""
    rng = np.random.default_rng([seed, int(workload[1:])])
    replicates = []
    for process in range(processes):
        shift = {a: noise * rng.standard_normal() for a in ratios}
        for allocation in range(3):
            drift = rng.normal(0, 0.05, 16)  # common to all arms of a block
            arms = {
                a: (10 * r * np.exp(shift[a] + drift + noise * rng.standard_normal(16))).tolist()
                for a, r in ratios.items()
            }
            clocks = Clocks(
                sm_mhz_low=1900, sm_mhz_median=2000, sm_mhz_high=2000, temperature_c=50, power_w=300
            )
            replicates.append(
                Replicate(process=process, allocation=allocation, arms=arms, clocks=clocks)
            )
    fields = {
        "study": "s",
        "depends": {"plan": "P1"},
        "versions": {"triton": "3.6.0"},
        "plan_commit": COMMIT,
        "device": "h200",
        "device_name": "NVIDIA H200",
        "device_uuid": "u",
        "workload": workload,
        "regime": "cold",
        "input_sets": 4,
        "replicates": replicates,
        "started_at": "2026-03-01T12:00:00+00:00",
        "gpu_seconds": 1.0,
    }
    return Measurement(**fields | changes)


def right(arm, verdict="right", **check):
    return Correctness(
        study="s", arm=arm, config={}, device="h200", device_name="NVIDIA H200", mode="gpu",
        verdict=verdict, checks=[Check(workload="c1", verdict=verdict, **check)],
    )  # fmt: skip


def feasible(arm, **changes):
    fields = {"study": "s", "arm": arm, "config": {}, "target": "sm_90", "verdict": "fits"}
    return Feasibility(**fields | changes)


TRUTH = {
    "c1": {"baseline": 1, "null": 1, "w8": 0.9, "s1": 1.0, "s3": 1.05, "s4": 1.0},
    "c64": {"baseline": 1, "null": 1, "w8": 1.25, "s1": 0.93, "s3": 0.96, "s4": 1.003},
    "c96": {"baseline": 1, "null": 1, "w8": 1.35, "s1": 0.9, "s3": 0.97, "s4": 0.5},
}


def collected(study, measurements=None, matrix=None, correct=None, **commit):
    plan = Plan(
        study="s", plan_hash="P1", title="t", document="D", sections={}, targets=["sm_90"],
        arms=[ArmPlan(name=a.name, config=a.config, why=[], facts={}) for a in study.arms],
        workloads=[
            WorkloadPlan(name=w.name, axes=w.axes, bytes=4_800_000, flop=0, sm_clocks=132 * 4000, grids={})
            for w in study.workloads
        ],
        autotune=None,
    )  # fmt: skip
    fields = {"commit": COMMIT, "committed_at": "2026-03-01T11:00:00+00:00", "preregistered": True}
    commits = PlanCommit(study="s", **{"plan_hash": "P1", "note": "", **fields, **commit})
    if measurements is None:
        measurements = {w: samples(ratios, w) for w, ratios in TRUTH.items()}
    if correct is None:
        correct = {a: right(a) for a in ARMS if a != "null"}
    matrix = {"sm_90": {a: feasible(a) for a in ARMS if a != "null"} | (matrix or {})}
    gpu = DeviceRecords("h200", "NVIDIA H200", "measured here", matrix, correct, measurements)
    return Collected(plan, commits, matrix, {"h200": gpu})


def again(found, arm, ratio=1.0):
    """``found`` with ``arm`` measured again, in fresh processes: ``ratio`` times what it took first."""
    confirmations = {
        w: samples({"baseline": 1, "null": 1, arm: TRUTH[w][arm] * ratio}, w, seed=9)
        for w in ("c64", "c96")
    }
    gpu = dataclasses.replace(found.devices["h200"], confirmations=confirmations)
    return dataclasses.replace(found, devices={"h200": gpu})


def judged(study, found, ancestor=lambda commit: True, **times):
    verdict = judge(study, found, ancestor, **times)
    (device,) = verdict.devices
    return device, {(r.arm, r.workload): r for r in device.results}


def test_every_arm_and_workload_gets_its_row_and_its_truth(study):
    device, row = judged(study, collected(study))
    assert set(row) == {(a.name, w.name) for a in study.arms for w in study.workloads}
    expected = {
        "c1": {"w8": "faster", "s1": "equivalent", "s3": "slower", "s4": "equivalent"},
        "c64": {"w8": "slower", "s1": "faster", "s3": "faster", "s4": "equivalent"},
        "c96": {"w8": "slower", "s1": "faster", "s3": "faster", "s4": "faster"},
    }
    for w, arms in expected.items():
        assert {a: row[a, w].verdict for a in arms} == arms
        assert row["baseline", w].verdict == "baseline" and row["baseline", w].ratio == 1
        for arm in arms:
            assert row[arm, w].low <= TRUTH[w][arm] * 1.003
            assert row[arm, w].high >= TRUTH[w][arm] * 0.997
            assert 0 < row[arm, w].noise_floor < 0.01
            assert row[arm, w].evidence == f"measurement/h200/{w}.json"
    assert row["null", "c1"].verdict in ("equivalent", "undecided")
    assert device.preregistered and device.plan_commit == COMMIT and device.target == "sm_90"
    assert device.versions == {"triton": "3.6.0"}


def test_an_arm_that_is_wrong_in_the_interpreter_is_noted(study):
    wrong = right("w8", "wrong", reason="y: off by one").model_copy(update={"mode": "logic"})
    found = dataclasses.replace(
        collected(study), logic={"baseline": right("baseline"), "w8": wrong}
    )
    assert judge(study, found, lambda commit: True).notes == [
        "not right in Triton's interpreter: w8 (y: off by one)"
    ]
    assert judge(study, collected(study), lambda commit: True).notes == []


def test_the_rule_adopts_the_lowest_mean_among_those_that_pass_the_guard(study):
    device, _ = judged(study, again(collected(study), "s1"))
    # s3 loses 5 % at the guard, s4 is not faster at c64, w8 is slower: only s1 passes.
    assert device.adopted == device.picked == "s1"
    assert device.decision.startswith("adopt s1: faster at c64, c96 (mean ratio 0.91")


@pytest.mark.parametrize("other", [None, "s3"])
def test_M6_what_was_picked_and_not_measured_again_is_not_adopted(study, other):
    found = again(collected(study), other) if other else collected(study)
    device, _ = judged(study, found)
    assert (device.picked, device.adopted, device.ruling.arm) == ("s1", None, None)
    assert device.ruling.outcome == "none", "the rule does not list inconclusive"
    assert device.decision == (
        "no decision: s1 was picked, and was not measured again on fresh replicates; `snakemake"
        " measure --forcerun measure_arms` does that"
    )


def test_M6_what_was_picked_and_is_not_faster_again_is_rejected(study):
    device, _ = judged(study, again(collected(study), "s1", 1.08))  # 1.004 at c64
    assert (device.picked, device.adopted, device.ruling.outcome) == ("s1", None, "reject")
    assert device.decision.startswith("reject: s1 was picked, but is not faster at every workload")


def test_of_two_that_pass_the_lower_mean_is_adopted(study):
    truth = {w: ratios | {"s3": min(ratios["s3"], 1.0)} for w, ratios in TRUTH.items()}
    found = collected(study, {w: samples(r, w) for w, r in truth.items()})
    device, row = judged(study, again(found, "s1"))
    assert {row[a, w].verdict for a in ("s1", "s3") for w in ("c64", "c96")} == {"faster"}
    assert row["s3", "c1"].high < 1.02
    assert device.adopted == "s1"


def test_no_arm_passes(study):
    flat = {w: samples(dict.fromkeys(ARMS, 1.0), w) for w in TRUTH}
    device, _ = judged(study, collected(study, flat))
    assert device.adopted is None
    assert device.decision == (
        "reject: no arm is faster at all of c64, c96 and loses at most 2 % at c1"
    )


def test_a_guard_that_is_too_noisy_to_know_does_not_pass(study):
    measurements = {w: samples(r, w) for w, r in TRUTH.items()}
    measurements["c1"] = samples(TRUTH["c1"], "c1", noise=0.05)
    device, row = judged(study, collected(study, measurements))
    assert row["s1", "c1"].high > 1.02
    assert device.adopted is None


def test_significant_but_inside_the_margin_is_equivalent_and_says_so(study):
    measurements = {w: samples(r, w) for w, r in TRUTH.items()}
    small = dict.fromkeys(ARMS, 1.0) | {"s1": 0.995}
    measurements["c64"] = samples(small, "c64", noise=0.00005)
    _, row = judged(study, collected(study, measurements))
    assert row["s1", "c64"].p_adjusted < 0.05
    assert row["s1", "c64"].verdict == "equivalent"
    assert "within ±1 %" in row["s1", "c64"].reason


def test_what_lies_inside_the_null_arms_interval_is_not_named(study):
    """s1 is 1.5 % faster beyond doubt. The twin of the baseline is ± 2 % from process to process, so
    that its interval, t(5) x 0.0219 / sqrt(6), admits 2.3 %: s1 is noise here, s3 with 4 % is not."""
    ratios = dict.fromkeys(ARMS, 1.0) | {"s1": 0.985, "s3": 0.96}
    calm = {w: samples(ratios, w, noise=0.0001) for w in TRUTH}
    restless = {w: m.model_copy(deep=True) for w, m in calm.items()}
    for r in (r for m in restless.values() for r in m.replicates):
        r.arms["null"] = [t * np.exp(0.02 * (-1) ** r.process) for t in r.arms["baseline"]]
    _, row = judged(study, collected(study, calm))
    assert {row[a, "c64"].verdict for a in ("s1", "s3")} == {"faster"}
    _, row = judged(study, collected(study, restless))
    assert row["null", "c64"].noise_floor == pytest.approx(0.0233, abs=1e-4)
    assert row["s1", "c64"].p_adjusted < 1e-4 and row["s1", "c64"].verdict == "undecided"
    assert row["s1", "c64"].reason == "significant, but no larger than the null arm admits (2.33 %)"
    assert row["s3", "c64"].verdict == "faster"


def test_rejected_arm_has_its_row_with_the_number(study):
    text = "shared memory 115,000 B > 101,376 B per block"
    reason = Reason(limit="shared memory", required=115000, allowed=101376, text=text)
    matrix = {"s4": feasible("s4", verdict="rejected", reasons=[reason])}
    device, row = judged(study, collected(study, matrix=matrix))
    assert (row["s4", "c96"].verdict, row["s4", "c96"].reason) == ("rejected", text)
    assert row["s4", "c96"].ratio is None
    assert any(text in c for c in device.conclusions)


def test_unsupported_is_not_the_arms_fault_but_is_rejected_here(study):
    matrix = {"s4": feasible("s4", verdict="unsupported")}
    _, row = judged(study, collected(study, matrix=matrix))
    assert row["s4", "c1"].verdict == "rejected" and "unsupported" in row["s4", "c1"].reason


@pytest.mark.parametrize("verdict", ["wrong", "error", "no answer"])
def test_C5_wrong_arm_keeps_its_reason_and_all_others_their_verdict(study, verdict):
    correct = {a: right(a) for a in ARMS} | {"s1": right("s1", verdict, reason="out of bounds")}
    device, row = judged(study, collected(study, correct=correct))
    assert (row["s1", "c64"].verdict, row["s1", "c64"].reason) == ("wrong", "c1: out of bounds")
    assert row["s1", "c64"].ratio is None and row["s3", "c64"].verdict == "faster"
    assert device.adopted is None


def test_C5_arm_that_fell_while_being_timed(study):
    measurements = {w: samples(r, w) for w, r in TRUTH.items()}
    fallen = {"disqualified": {"s1": "c96: no answer in 300 s"}}
    measurements["c96"] = measurements["c96"].model_copy(update=fallen)
    device, row = judged(study, collected(study, measurements))
    assert {row["s1", w].verdict for w in TRUTH} == {"wrong"}
    assert "no answer in 300 s" in row["s1", "c1"].reason
    assert device.adopted is None


def test_arm_without_correctness_record_gets_no_verdict(study):
    correct = {a: right(a) for a in ARMS if a != "s1"}
    device, row = judged(study, collected(study, correct=correct))
    assert row["s1", "c64"].verdict == "exploratory" and row["s1", "c64"].ratio < 1
    assert "not known to be right" in row["s1", "c64"].reason
    assert device.adopted is None and device.preregistered


def test_F4_same_code_is_one_arm(study):
    measurements = {
        w: samples({a: r for a, r in ratios.items() if a not in ("s3", "s4")}, w)
        for w, ratios in TRUTH.items()
    }
    matrix = {
        "s3": feasible("s3", same_code_as="s1"),
        "s4": feasible("s4", same_code_as="baseline"),
    }
    device, row = judged(study, again(collected(study, measurements, matrix), "s1"))
    twin, phantom = row["s1", "c64"], row["s3", "c64"]
    assert phantom.reason == "same code as s1"
    assert (phantom.ratio, phantom.p_adjusted, phantom.verdict) == (
        twin.ratio, twin.p_adjusted, twin.verdict,
    )  # fmt: skip
    base = row["s4", "c64"]
    assert (base.verdict, base.ratio, base.reason) == ("equivalent", 1.0, "same code as baseline")
    assert device.adopted == "s1"
    assert any("same code on sm_90: 2 (" in c for c in device.conclusions)


def test_phantoms_do_not_enlarge_the_family(study):
    few = {w: {a: r for a, r in ratios.items() if a != "s4"} for w, ratios in TRUTH.items()}
    measurements = {w: samples(r, w) for w, r in few.items()}
    matrix = {"s4": feasible("s4", same_code_as="s1")}
    _, row = judged(study, collected(study, measurements, matrix))
    _, alone = judged(study, collected(study, measurements))
    assert row["s3", "c64"].p_adjusted == alone["s3", "c64"].p_adjusted
    assert alone["s4", "c64"].verdict == "not measured"


def test_workload_without_samples_is_not_measured_and_nothing_is_decided(study):
    measurements = {w: samples(TRUTH[w], w) for w in ("c1", "c64")}
    device, row = judged(study, collected(study, measurements))
    assert row["s1", "c96"].verdict == "not measured" and row["s1", "c96"].ratio is None
    assert row["s1", "c64"].verdict == "faster"
    assert device.decision == "no decision: not measured at c96"


def test_no_measurement_at_all(study):
    device, row = judged(study, collected(study, {}))
    assert not device.preregistered and device.measured_at == "" and device.floors == {}
    assert {r.verdict for r in row.values()} == {"not measured", "baseline"}
    assert device.decision.startswith("no decision: not measured")


def test_wrong_baseline_compares_with_nothing(study):
    correct = {a: right(a) for a in ARMS} | {"baseline": right("baseline", "wrong", reason="NaN")}
    device, row = judged(study, collected(study, correct=correct))
    assert row["baseline", "c1"].verdict == row["null", "c1"].verdict == "wrong"
    assert (
        row["s1", "c64"].verdict == "exploratory" and "baseline is wrong" in row["s1", "c64"].reason
    )
    assert device.adopted is None


@pytest.mark.parametrize(
    ("commit", "change", "said"),
    [
        ({"plan_hash": "P0"}, {}, "the plan was edited after its commit"),
        ({}, {"plan_commit": None}, "without a plan commit"),
        ({}, {"depends": {"plan": "P0"}}, "under another plan"),
        ({}, {"plan_commit": "another"}, "not known to hold this plan"),
        ({}, {"started_at": "2026-03-01T10:59:59Z"}, "first sample 2026-03-01T10:59:59Z"),
        ({}, {"started_at": "2026-03-01T12:30:00+02:00"}, "first sample"),
        ({}, {"started_at": "yesterday"}, "no valid times"),
        ({"committed_at": None}, {}, "not known to hold this plan"),
        ({"preregistered": False, "note": "work tree was dirty"}, {}, "work tree was dirty"),
    ],
)
def test_H1_not_pre_registered_is_exploratory_with_its_figures(study, commit, change, said):
    measurements = {w: samples(r, w, **change) for w, r in TRUTH.items()}
    device, row = judged(study, collected(study, measurements, **commit))
    assert not device.preregistered and device.adopted is None
    assert device.decision.startswith("no decision: exploratory") and said in device.decision
    for arm in ("w8", "s1", "s3", "s4", "null"):
        assert row[arm, "c64"].verdict == "exploratory" and said in row[arm, "c64"].reason
        assert row[arm, "c64"].low < row[arm, "c64"].ratio < row[arm, "c64"].high


def test_H1_commit_outside_the_history(study):
    device, row = judged(study, collected(study), ancestor=lambda commit: commit != COMMIT)
    assert not device.preregistered
    assert "not in the history" in row["s1", "c64"].reason


def test_evidence_under_an_older_commit_of_the_same_plan(study):
    found = collected(study, commit="later", committed_at="2026-04-01T00:00:00Z")
    device, _ = judged(study, again(found, "s1"), committed_at={COMMIT: "2026-03-01T11:00:00Z"})
    assert device.preregistered and device.adopted == "s1"


def test_a_run_that_was_stopped_is_not_looked_at_early(study):
    measurements = {w: samples(r, w) for w, r in TRUTH.items()}
    measurements["c96"] = samples(TRUTH["c96"], "c96", processes=2)
    device, row = judged(study, collected(study, measurements))
    assert row["s1", "c96"].verdict == "exploratory"
    assert row["s1", "c96"].reason == "incomplete: 2 of 6 processes"
    assert device.preregistered and device.decision.startswith("no decision")


def test_M6_best_of_many_equal_arms_is_no_winner(study):
    """Over 60 studies of equal arms, at most 5 % (binomially) claim any difference at all."""
    claims = 0
    for seed in range(60):
        flat = {w: samples(dict.fromkeys(ARMS, 1.0), w, seed=seed) for w in TRUTH}
        _, row = judged(study, collected(study, flat))
        own = [r.verdict for (arm, _), r in row.items() if arm not in ("baseline", "null")]
        claims += "faster" in own or "slower" in own
    assert claims <= 8  # P(more | 60, 5 %) < 0.5 %


def test_floors_are_peak_bandwidth_and_issue_clocks(study):
    found = collected(study)
    bounds = floors(found.plan, found.devices["h200"])["c64"]
    assert bounds == pytest.approx({"bandwidth_us": 1.0, "issue_us": 2.0, "floor_us": 2.0})
    (plain, *_) = found.plan.workloads
    unknown = found.plan.model_copy(
        update={"workloads": [plain.model_copy(update={"sm_clocks": 0.0})]}
    )
    assert floors(unknown, found.devices["h200"]) == {
        "c1": pytest.approx({"bandwidth_us": 1.0, "floor_us": 1.0})
    }
    unlisted = DeviceRecords("x", "Unlisted GPU", "measured here", {}, {}, {})
    assert floors(found.plan, unlisted) == {}


def test_unlisted_device_still_gets_its_verdicts(study):
    found = collected(study)
    gpu = found.devices["h200"]
    other = DeviceRecords(
        "x", "Unlisted GPU", gpu.source, gpu.feasibility, gpu.correctness, gpu.measurements
    )
    device, row = judged(study, Collected(found.plan, found.plan_commit, {}, {"x": other}))
    assert (device.target, device.floors) == ("unknown", {})
    assert row["s1", "c64"].verdict == "faster"


def test_assumptions_and_notes_are_carried_over(study):
    found = collected(study)
    found.notes.append("measurement/h200/c7.json: stale; kept out")
    verdict = judge(study, found, lambda commit: True)
    assert verdict.assumptions[0].verdict == "confirmed"
    assert verdict.notes == found.notes
    assert verdict.depends == {"plan": "P1", "launch": study.launch_digest}


def test_from_files_to_a_verdict_record_that_reads_back(study, tmp_path):
    """H2 end to end: the stale workload is named and its rows are empty; the record is whole."""
    results = tmp_path / "results"
    found = collected(study)
    write_record(results / "plan.json", found.plan)
    write_record(results / "plan_commit.json", found.plan_commit)
    stamp = {"launch": study.launch_digest}
    for arm in (a for a in study.arms if not a.twin):
        record = right(arm.name).model_copy(update={"depends": stamp, "config": arm.config})
        write_record(results / f"correctness/h200/{arm.name}.json", record)
    for w, ratios in TRUTH.items():
        hash_ = "P0" if w == "c96" else "P1"
        measured = samples(ratios, w, depends={"plan": hash_, **stamp})
        write_record(results / f"measurement/h200/{w}.json", measured)
    again = collect(results, study.launch_digest)
    verdict = judge(study, again, lambda commit: True)
    assert any("c96.json: stale" in note for note in verdict.notes)
    verdicts = SimpleNamespace(
        **{r.workload: r.verdict for r in verdict.devices[0].results if r.arm == "s1"}
    )
    assert (verdicts.c64, verdicts.c96) == ("faster", "not measured")
    write_record(results / "verdict.json", verdict)
    assert read_record(results / "verdict.json", Verdict) == verdict
